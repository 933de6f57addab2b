# SPDX-License-Identifier: MIT
"""The chats of a fine-tuning: tokens, which of them are trained, and rows."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...data import BucketLoader, Documents, Loader, PackedDataset, Tokenizer
from ...data.dataset import IGNORE_INDEX
from ...data.text.chat import Chats, ChatTemplate, EncodedChats, encode_chats, read_chats
from ...errors import ConfigError, FormatError, reason
from .config import FinetuneConfig
from .data_options import read_weight

__all__ = ["Examples", "loader_of", "pieces", "read_examples", "split_off", "template_of", "turns"]

_SEQ_LEN_MAX = 1024
_MULTIPLE = 32
_SHOWN_MAX = 400
_KEY = "tokenizer.chat_template"
# The template for a base without one whose vocabulary has no marks of another.
_OTHERWISE = "zephyr"
# Formats that are trained as they are where there is no template.
_PLAIN = {"pairs", "text"}
_MARK = re.compile(r"\{%([-+]?)\s*(?:end)?generation\s*([-+]?)%\}")


@dataclass(frozen=True)
class Examples:
    """Chats as tokens.

    Args:
        chats: what was read.
        train: documents to train on, and what became of the chats.
        validation: those to validate on, or None.
        seq_len: tokens of a row.
        template: the chat template, or None where pairs and texts are trained as they are.
        is_own: the template is not that of the base.
    """

    chats: Chats
    train: EncodedChats
    validation: EncodedChats | None
    seq_len: int
    template: ChatTemplate | None
    is_own: bool

    # Whether the loss is that of text, which has a perplexity, and whether the model answers.
    is_text: ClassVar[bool] = True
    writes: ClassVar[bool] = True

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of every evaluation, besides those of the loss."""
        return ()

    def objective(self, config: FinetuneConfig) -> Any:
        """Return the loss; None where it is the model's own.

        Args:
            config: of the run.
        """
        return None

    def method(self, objective: Any) -> str:
        """Return what is learnt in words, where it is not text.

        Args:
            objective: of `objective`.
        """
        return ""

    def with_head(self, model: Any) -> Any:
        """Return the model with the head that the examples need.

        Args:
            model: the base.
        """
        return model

    def loaders(self, config: FinetuneConfig) -> list[Any]:
        """Return the batches to train on and, if there are any, to validate on.

        Args:
            config: of the run.
        """
        return [loader_of(config, each, self.seq_len, not i) for i, each in enumerate(self.sets)]

    def results(self, logits: Iterable[np.ndarray], tokenizer: Tokenizer) -> Any:
        """Return the predictions for the validation examples; None where there are no classes.

        Args:
            logits: of the validation batches.
            tokenizer: tokens to text.
        """
        return None

    def sample(self, batch: Any, tokenizer: Tokenizer) -> list[list[tuple[str, bool]]]:
        """Return the first row of a batch: its examples in pieces, each with whether it trains.

        Args:
            batch: of the training.
            tokenizer: tokens to text.
        """
        return pieces(batch, 0, tokenizer)

    @property
    def sets(self) -> list[Documents]:
        """The documents to train on and, if there are any, to validate on."""
        return [each.documents for each in (self.train, self.validation) if each is not None]

    def unseen(self) -> list[str]:
        """Return the classes of which no text is trained on; none of what has no classes."""
        return []

    @property
    def crc32(self) -> int:
        """A checksum of the tokens and of which are trained."""
        crc = self.seq_len
        for documents in self.sets:
            for array in (documents.ids, documents.offsets, documents.counted):
                if array is not None:
                    crc = zlib.crc32(np.ascontiguousarray(array).tobytes(), crc)
        return crc

    @property
    def tokens(self) -> int:
        """Tokens of all chats."""
        return sum(int(documents.ids.size) for documents in self.sets)

    @property
    def template_file(self) -> str | None:
        """The template without the marks that llama.cpp has no use for; None without one."""
        return None if self.template is None else _MARK.sub(r"{#\1 \2#}", self.template.source)


def read_examples(
    config: FinetuneConfig, model: Any, tokenizer: Tokenizer, source: Sequence[Any]
) -> Examples:
    """Read the chats, write them by the template, and encode them.

    Args:
        config: of the run.
        model: the base, whose file may have a chat template.
        tokenizer: text to tokens.
        source: files or rows.

    Raises:
        FormatError: a file is missing or damaged, or a row is no chat; names it.
        ConfigError: an option does not suit the files.
    """
    data = config.data
    chats = _read(config, source)
    is_plain = set(chats.formats.values()) <= _PLAIN
    template, is_own = template_of(config, is_plain, model, tokenizer)
    parts: list[Chats] = [chats]
    if data.val_fraction:
        try:
            parts = list(chats.split(data.val_fraction, config.trainer.seed))
        except ValueError as error:
            raise ConfigError(
                f"`val_fraction`={data.val_fraction}: {reason(error)}: give more chats, or "
                "`val_fraction`=0"
            ) from error
    context = model.config.context
    if data.seq_len is not None and data.seq_len > context:
        raise ConfigError(
            f"`seq_len` must be at most the context of the base, {context}; got {data.seq_len}: "
            "lower it"
        )
    # Without a limit first: the longest chat chooses it.
    how: dict[str, Any] = {"train_on": data.train_on, "skip_bad": data.skip_bad}
    seq_len = data.seq_len
    if seq_len is None:
        whole = _encoded(parts, tokenizer, template, **how)
        longest = max(each.counts.longest for each in whole) - 1
        seq_len = min(-(-longest // _MULTIPLE) * _MULTIPLE, _SEQ_LEN_MAX, context)
        if longest <= seq_len:
            return Examples(chats, whole[0], _second(whole), seq_len, template, is_own)
    how |= {"seq_len": seq_len, "too_long": data.too_long}
    cut = _encoded(parts, tokenizer, template, **how)
    return Examples(chats, cut[0], _second(cut), seq_len, template, is_own)


def _encoded(
    parts: Sequence[Chats], tokenizer: Tokenizer, template: ChatTemplate | None, **how: Any
) -> list[EncodedChats]:
    """Return chats as tokens; an error names the option that the chats come from."""
    try:
        return [encode_chats(part, tokenizer, template, **how) for part in parts]
    except FormatError as error:
        raise FormatError(f"`data`: {reason(error)}") from error


def _second(encoded: list[EncodedChats]) -> EncodedChats | None:
    return encoded[1] if len(encoded) > 1 else None


def _read(config: FinetuneConfig, source: Sequence[Any]) -> Chats:
    """Return the chats of all files, each as often as its weight says, or of rows."""
    data = config.data
    weights = dict(map(read_weight, data.data_weight))
    found: Chats | None = None
    files = source if isinstance(source[0], str) else [source]
    for file in files:
        try:
            chats = read_chats(file, data.format, system=data.system, skip_bad=data.skip_bad)
        except FormatError as error:
            raise FormatError(f"`data`: {reason(error)}") from error
        if isinstance(file, str) and file in weights:
            chats = chats.repeated(weights[file], config.trainer.seed)
        found = chats if found is None else found + chats
    assert found is not None
    if data.unique:
        found = found.unique()
    if not len(found):
        raise ConfigError("`data_weight` leaves no chat: give larger factors")
    return found


def template_of(
    config: FinetuneConfig, is_plain: bool, model: Any, tokenizer: Tokenizer
) -> tuple[ChatTemplate | None, bool]:
    """Return the template, and whether it is another than that of the base.

    Args:
        config: of the run.
        is_plain: the data can be trained without a template.
        model: the base.
        tokenizer: of the base.

    Raises:
        FormatError: the template cannot be read.
    """
    given, own = config.data.chat_template, model.metadata.get(_KEY)
    if given is None and is_plain and not str(own or "").strip():
        return None, False
    try:
        template = ChatTemplate.of_model(model.metadata, tokenizer, given, config.model.model)
    except FormatError as error:
        cure = ": give another with `chat_template`" if given is None else ""
        raise FormatError(f"`chat_template`: {reason(error)}{cure}") from error
    template = template or ChatTemplate.of(_OTHERWISE, tokenizer)
    return template, template.source != own


def split_off(config: FinetuneConfig, read: Any) -> list[Any]:
    """Return rows to train on and, with the option `val_fraction`, others to validate on.

    Args:
        config: of the run.
        read: the rows.

    Raises:
        ConfigError: the fraction leaves one side without what it needs.
    """
    share = config.data.val_fraction
    if not share:
        return [read]
    try:
        return list(read.split(share, config.trainer.seed))
    except ValueError as error:
        raise ConfigError(
            f"`val_fraction`={share}: {reason(error)}: give more rows, or `val_fraction`=0"
        ) from error


def loader_of(config: FinetuneConfig, documents: Documents, seq_len: int, training: bool) -> Any:
    """Return batches of rows: packed, or of one chat each.

    Args:
        config: of the run.
        documents: what is read.
        seq_len: tokens of a row.
        training: in another order in each epoch.
    """
    size, seed = config.trainer.value("batch_size"), config.trainer.seed
    if not config.data.packing:
        return BucketLoader(documents, size * seq_len, seq_len=seq_len, shuffle=training, seed=seed)
    rows = PackedDataset(documents, seq_len)
    size = min(size, len(rows))
    if training:
        return Loader(rows, size, seed=seed)
    return Loader(rows, size, shuffle=False, pad_last=True)


def turns(documents: Documents, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens before the last trained span of an example, and the span.

    Where all tokens are trained, the first half stands before.

    Args:
        documents: the examples.
        number: of the example.
    """
    ids, flags = documents[number], documents.targets(number)
    if flags.all() or not flags.any():
        half = max(1, ids.size // 2)
        return ids[:half], ids[half:]
    end = int(np.flatnonzero(flags)[-1]) + 1
    before = np.flatnonzero(~flags[:end])
    start = int(before[-1]) + 1 if before.size else 1
    return ids[:start], ids[start:end]


def pieces(batch: Any, row: int, tokenizer: Tokenizer) -> list[list[tuple[str, bool]]]:
    """Return the text of a row's examples in pieces, each with whether it is trained.

    Args:
        batch: of the training.
        row: number of the row.
        tokenizer: tokens to text.
    """
    x, y = batch.x[row], batch.y[row]
    segments = batch.inputs.get("segments", np.zeros_like(batch.x))[row]
    found = []
    for number in np.unique(segments):
        at = np.flatnonzero(segments == number)
        trained = y[at] != IGNORE_INDEX
        if not trained.any():
            continue  # what fills the row up
        tokens = [(int(x[at[0]]), False)]
        for i, place in enumerate(at):
            if trained[i]:
                tokens.append((int(y[place]), True))
            elif i + 1 < at.size and trained[i:].any():
                tokens.append((int(x[at[i + 1]]), False))
        found.append(list(_joined(tokens[:_SHOWN_MAX], tokenizer)))
    return found


def _joined(tokens: list[tuple[int, bool]], tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    """Yield the text of neighbouring tokens that are trained, or that are not."""
    stream = tokenizer.stream(skip_special=False)
    text, before = "", tokens[0][1]
    for token, trained in tokens:
        if trained != before and text:
            yield text, before
            text = ""
        text, before = text + stream.push(token), trained
    text += stream.finish()
    if text:
        yield text, before
