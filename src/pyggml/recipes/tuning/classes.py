# SPDX-License-Identifier: MIT
"""The data of a classifier or a reward model: rows, tokens, batches, and the head for them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import nn
from ...data import (
    Documents,
    LabelledDataset,
    LabelledTexts,
    Loader,
    Tokenizer,
    read_labelled,
    read_records,
)
from ...data.text.chat import ChatCounts, EncodedChats, EncodedPreferences, read_preferences
from ...errors import ConfigError, FormatError, reason
from ...io import u32
from ...models import Llama, LlamaForSequenceClassification
from ...train.metrics import confusion_matrix
from ...train.preferences import RewardDataset, RewardLoss
from ..report import ClassResults, WorstExamples
from .config import FinetuneConfig
from .data import Examples, split_off, template_of
from .preferences import encode_parts, row_length

_PADDING = "tokenizer.ggml.padding_token_id"

__all__ = ["ClassExamples", "read_class_examples"]


@dataclass(frozen=True)
class ClassExamples(Examples):
    """Texts with classes, or pairs of answers, as tokens.

    Args:
        rows: what is trained on and perhaps what is validated on: the classes of the texts, or the
            pairs.
        names: of the classes; None of numbers, and of a reward.
        classes: 1 for a reward.
    """

    rows: tuple[np.ndarray | EncodedPreferences, ...] = ()
    names: tuple[str, ...] | None = None
    classes: int = 2

    is_text = writes = False

    @property
    def crc32(self) -> int:
        """A checksum of the tokens, of their classes, and of the names."""
        found = zlib.crc32(repr((self.names, self.classes)).encode(), super().crc32)
        for each in self.rows:
            labels = each.labels if isinstance(each, EncodedPreferences) else each
            found = zlib.crc32(np.asarray(labels, np.int32).tobytes(), found)
        return found

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of every evaluation, besides those of the loss."""
        return ("accuracy",) if self.classes > 1 else ()

    def unseen(self) -> list[str]:
        """Return the classes of which no text is trained on."""
        if self.names is None or isinstance(self.rows[0], EncodedPreferences):
            return []
        seen = set(self.rows[0].tolist())
        return [name for number, name in enumerate(self.names) if number not in seen]

    def objective(self, config: FinetuneConfig) -> Any:
        """Return the loss of pairs; None of classes, whose loss is the model's."""
        if self.classes > 1:
            return None
        if config.trainer.label_smoothing:
            raise ConfigError("`label_smoothing` is for classes; got pairs: leave it out")
        return RewardLoss()

    def method(self, objective: Any) -> str:
        """Return the classes in words."""
        if self.classes == 1:
            return "reward of pairs, Bradley-Terry"
        return f"{self.classes} classes: " + ", ".join(self.names or map(str, range(self.classes)))

    def with_head(self, model: Any) -> Any:
        """Return the model with a head of these classes, in f32.

        Raises:
            ConfigError: the base can have none, or has one of other classes.
        """
        found = self._headed(model)
        # transformers pools the last token that is not the padding: no text may end with that.
        ends = {int(each[i][-1]) for each in self.sets for i in range(len(each))}
        keys = (f"tokenizer.ggml.{role}_token_id" for role in ("padding", "eos", "bos"))
        ids = [int(found.metadata[key]) for key in keys if key in found.metadata]
        free = (n for n in (*ids, *range(found.config.vocab_size)) if n not in ends)
        found.metadata = {**found.metadata, _PADDING: u32(next(free))}
        return found

    def _headed(self, model: Any) -> Any:
        """Return the model with a head of the classes."""
        who = "`task`=classify"
        if not isinstance(model, LlamaForSequenceClassification):
            if not isinstance(model, Llama):
                raise ConfigError(
                    f"{who} needs a base of the Llama family; got a {type(model).__name__}: choose "
                    "another `model`"
                )
            try:
                return LlamaForSequenceClassification.from_body(model, self.classes, self.names)
            except ValueError as error:
                raise ConfigError(f"{who}: {reason(error)}: choose another `model`") from error
        if model.config.classes != self.classes:
            raise ConfigError(
                f"{who}: the data must have the classes of the base, {model.config.classes}; got "
                f"{self.classes}: give other `data`, or a language model as `model`"
            )
        head = model.head_weight
        if head.dtype.name != "f32":
            trained = nn.Parameter(head.numpy(), dtype="f32", device=head.device)
            model.replace_tensors([(head, trained)])
        return model

    def loaders(self, config: FinetuneConfig) -> list[Any]:
        """Return the batches to train on and, if there are any, to validate on."""
        found = []
        for number, (documents, rows) in enumerate(zip(self.sets, self.rows, strict=True)):
            dataset: Any
            if isinstance(rows, EncodedPreferences):
                dataset = RewardDataset(rows, self.seq_len)
            else:
                dataset = LabelledDataset(documents, rows, self.seq_len)
            size, training = min(config.trainer.value("batch_size"), len(dataset)), number == 0
            pad = not training and self.classes > 1
            found.append(
                Loader(
                    dataset, size, shuffle=training, seed=config.trainer.seed,
                    drop_last=training, pad_last=pad,
                )
            )  # fmt: skip
        return found

    def results(self, logits: Iterable[np.ndarray], tokenizer: Tokenizer) -> ClassResults | None:
        """Return the predictions for the validation texts; None of pairs and without validation."""
        if self.classes < 2 or self.validation is None:
            return None
        names = list(self.names or map(str, range(self.classes)))
        labels, texts = np.asarray(self.rows[1]), self.validation.documents
        worst, predicted = WorstExamples(names), []
        first = 0
        for batch in logits:
            own = labels[first : first + len(batch)]  # the last batch is filled up
            shown = [tokenizer.decode(texts[first + i], skip_special=True) for i in range(len(own))]
            worst.add(shown, batch[: len(own)], own)
            predicted.append(batch[: len(own)].argmax(axis=-1))
            first += len(own)
        table = confusion_matrix(np.concatenate(predicted), labels[:first], len(names))
        return ClassResults(names, table, worst.to_list())

    def sample(self, batch: Any, tokenizer: Tokenizer) -> list[list[tuple[str, bool]]]:
        """Return the first text of a batch with its label; of pairs both answers."""
        rows = [0] if self.classes > 1 else [0, len(batch.x) // 2]
        found = []
        for row in rows:
            count = int(batch.inputs["attention_mask"][row].sum())
            label = int(batch.y[row])
            name = self.names[label] if self.names else str(label)
            told = name if self.classes > 1 else ("rejected", "chosen")[label]
            found.append([(tokenizer.decode(batch.x[row, :count]), False), (f" → {told}", True)])
        return found


def read_class_examples(
    config: FinetuneConfig, model: Any, tokenizer: Tokenizer, source: Sequence[Any]
) -> ClassExamples:
    """Read texts with labels, or pairs for a reward, and encode them.

    Args:
        config: of the run.
        model: the base.
        tokenizer: text to tokens.
        source: files or rows.

    Raises:
        FormatError: a file is missing or damaged, or a row lacks a text or a label; names it.
        ConfigError: an option does not suit the files.
    """
    try:
        first = next(iter(read_records(source)), {})
        if {"chosen", "rejected"} <= set(first):
            return _pairs(config, model, tokenizer, source)
        return _labelled(config, model, tokenizer, source)
    except FormatError as error:
        raise FormatError(f"`data`: {reason(error)}") from error


def _pairs(
    config: FinetuneConfig, model: Any, tokenizer: Tokenizer, source: Sequence[Any]
) -> ClassExamples:
    """Return the examples of a reward."""
    data = config.data
    if config.task.labels:
        raise ConfigError("`labels` is for rows of text and label; got pairs: leave it out")
    read = read_preferences(source, system=data.system, skip_bad=data.skip_bad)
    template, is_own = template_of(config, read.is_plain, model, tokenizer)
    # The last token is an input, too.
    pairs, sets, seq_len = encode_parts(config, model, tokenizer, read, template, targets=0)
    chats: Any = read
    validation = sets[1] if len(sets) > 1 else None
    return ClassExamples(
        chats, sets[0], validation, seq_len, template, is_own, rows=pairs, classes=1
    )


def _labelled(
    config: FinetuneConfig, model: Any, tokenizer: Tokenizer, source: Sequence[Any]
) -> ClassExamples:
    """Return the examples of classes."""
    data = config.data
    for name in ("chat_template", "system"):
        if config[name] is not None:
            raise ConfigError(f"`{name}` is for chats and pairs; got texts: leave it out")
    names: tuple[str, ...] | None = config.task.labels or None
    if isinstance(model, LlamaForSequenceClassification):
        own = model.config.labels or tuple(map(str, range(model.config.classes)))
        if names not in (None, own) or len(own) < 2:
            raise ConfigError(
                f"`labels` must be those of the base, {', '.join(own)}; got "
                f"{', '.join(names or ('texts with labels',))}: leave them out, or give a language "
                "model as `model`"
            )
        names = own
    read = read_labelled(source, names, skip_bad=data.skip_bad)
    parts: list[LabelledTexts] = split_off(config, read)
    encoded = [_encoded(part, tokenizer) for part in parts]
    longest = max(ids.size for part in encoded for ids in part)
    seq_len = row_length(config, longest, model.config.context)
    drop = data.too_long == "drop"
    sets, rows = [], []
    for part, documents in zip(parts, encoded, strict=True):
        long = [ids.size > seq_len for ids in documents]
        kept = [i for i, each in enumerate(long) if not (each and drop)]
        if not kept:
            raise ConfigError(f"`seq_len`={seq_len} leaves no text: give a larger one")
        counts = ChatCounts(
            chats=len(part),
            documents=len(kept),
            tokens=sum(min(documents[i].size, seq_len) for i in kept),
            longest=max(ids.size for ids in documents),
            cut=0 if drop else sum(long),
            dropped=len(part) - len(kept),
        )
        cut = Documents.of([_cut(documents[i], seq_len, tokenizer) for i in kept])
        sets.append(EncodedChats(cut, counts))
        rows.append(np.asarray([part.labels[i] for i in kept], np.int32))
    chats: Any = read
    return ClassExamples(
        chats, sets[0], sets[1] if len(sets) > 1 else None, seq_len, None, False,
        rows=tuple(rows), names=read.names, classes=read.classes,
    )  # fmt: skip


def _encoded(texts: LabelledTexts, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Return the tokens of texts as llama.cpp and transformers give them to a classifier."""
    found = []
    for text, where in zip(texts.texts, texts.places, strict=True):
        try:
            found.append(tokenizer.encode(text, add_special=True))
        except ValueError as error:
            raise FormatError(f"{where}: {reason(error)}") from error
    return found


def _cut(ids: np.ndarray, seq_len: int, tokenizer: Tokenizer) -> np.ndarray:
    """Return the beginning of a text, with the token that ends it where texts have one."""
    found = ids[:seq_len]
    if ids.size > seq_len and tokenizer.add_eos:
        found = np.append(found[:-1], ids[-1])
    return found
