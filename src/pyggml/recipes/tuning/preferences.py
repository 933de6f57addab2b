# SPDX-License-Identifier: MIT
"""The data of a training by preferences: rows, tokens, the reference and batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data import Documents, Loader, Tokenizer
from ...data.text.chat import (
    ChatCounts,
    ChatTemplate,
    EncodedChats,
    EncodedPreferences,
    Preferences,
    encode_preferences,
    read_preferences,
)
from ...errors import ConfigError, FormatError, reason
from ...nn.raw_bytes import checksum
from ...train.preferences import JudgedDataset, PairDataset, document_logps, mismatched
from ...train.preferences.reference import read_reference, reference_key, write_reference
from .base import changes_base
from .config import FinetuneConfig
from .data import Examples, pieces, split_off, template_of

__all__ = [
    "PreferenceExamples",
    "Reference",
    "encode_parts",
    "read_preference_examples",
    "row_length",
]

_SEQ_LEN_MAX = 1024
_MULTIPLE = 32


@dataclass(frozen=True)
class PreferenceExamples(Examples):
    """Preferences as tokens; `validation` has the good answers alone.

    Args:
        pairs: rows to train on, and perhaps to validate on.
    """

    pairs: tuple[EncodedPreferences, ...] = ()

    @property
    def crc32(self) -> int:
        """A checksum of the tokens and labels."""
        found = self.seq_len
        for each in self.pairs:
            found = (found * 31 + each.fingerprint()) & 0xFFFFFFFF
        return found

    def objective(self, config: FinetuneConfig) -> Any:
        """Return the loss of the method."""
        return config.preferences.objective(config.trainer.label_smoothing)

    def method(self, objective: Any) -> str:
        """Return the loss in words."""
        known = "the model before the training" if objective.needs_reference else "none"
        return f"{objective.method}, beta {objective.beta:g}; reference: {known}"

    def sample(self, batch: Any, tokenizer: Tokenizer) -> list[list[tuple[str, bool]]]:
        """Return both answers of the first pair, or the first judged answer, in pieces."""
        rows = [0, len(batch.x) // 2] if self.pairs[0].paired else [0]
        return [part for row in rows for part in pieces(batch, row, tokenizer)]

    @property
    def tokens(self) -> int:
        """Tokens of all answers with their prompts."""
        return sum(int(each.documents.ids.size) for each in self.pairs)


def read_preference_examples(
    config: FinetuneConfig, model: Any, tokenizer: Tokenizer, source: Sequence[Any]
) -> PreferenceExamples:
    """Read preferences, write them by the template, and encode them.

    Args:
        config: of the run.
        model: the base, whose file may have a chat template.
        tokenizer: text to tokens.
        source: files or rows.

    Raises:
        FormatError: a file is missing or damaged, or a row holds no preference; names it.
        ConfigError: an option does not suit the files.
    """
    data, method = config.data, config.preferences.method
    try:
        read = read_preferences(source, system=data.system, skip_bad=data.skip_bad)
    except FormatError as error:
        raise FormatError(f"`data`: {reason(error)}") from error
    if method == "kto":
        read = read.unpaired()
    elif not read.paired:
        raise ConfigError(
            f"`method`={method} needs rows of prompt, chosen and rejected; got judged answers: "
            "give `method`=kto"
        )
    is_plain = read.is_plain and data.system is None
    template, is_own = template_of(config, is_plain, model, tokenizer)
    pairs, sets, seq_len = encode_parts(config, model, tokenizer, read, template)
    good = None
    if len(sets) > 1:
        kept = np.flatnonzero(pairs[1].labels)
        documents = _chosen(pairs[1].documents, kept)
        good = EncodedChats(documents, sets[1].counts) if len(documents) else None
    chats: Any = read
    return PreferenceExamples(chats, sets[0], good, seq_len, template, is_own, pairs)


def encode_parts(
    config: FinetuneConfig,
    model: Any,
    tokenizer: Tokenizer,
    read: Preferences,
    template: ChatTemplate | None,
    targets: int = 1,
) -> tuple[tuple[EncodedPreferences, ...], list[EncodedChats], int]:
    """Return preferences to train on and perhaps to validate on, as tokens.

    Args:
        config: of the run.
        model: the base.
        tokenizer: text to tokens.
        read: the preferences.
        template: of the conversations, or None.
        targets: 1 where the last token of a document is a target only, 0 where it is an input.

    Returns:
        The parts, their documents with counts, and the most inputs of a row.

    Raises:
        FormatError: a conversation cannot be written; names its place.
        ConfigError: an option does not suit the preferences.
    """
    data = config.data
    parts: list[Preferences] = split_off(config, read)
    try:
        encoded = [encode_preferences(part, tokenizer, template) for part in parts]
    except FormatError as error:
        raise FormatError(f"`data`: {reason(error)}") from error
    longest = [int(each.documents.lengths.max()) for each in encoded]
    seq_len = row_length(config, max(longest) - targets, model.config.context)
    try:
        most = max(1, seq_len - 1 + targets)
        pairs = tuple(each.limited(most, data.too_long) for each in encoded)
    except FormatError as error:
        said = reason(error)
        if seq_len == model.config.context:
            said = said.partition("; give")[0]
            raise FormatError(
                f"`data`: {said}; the base reads no more than {seq_len} tokens: take another base, "
                "or shorter rows"
            ) from error
        raise ConfigError(f"`seq_len`={seq_len}: {said}") from error
    return pairs, [_told(each, longest[number]) for number, each in enumerate(pairs)], seq_len


def row_length(config: FinetuneConfig, longest: int, context: int) -> int:
    """Return the most tokens of a row: as given, or those of the longest text within bounds.

    Args:
        config: of the run.
        longest: inputs of the longest text.
        context: of the base.

    Raises:
        ConfigError: more are asked for than the base reads.
    """
    given = config.data.seq_len
    if given is None:
        return min(-(-longest // _MULTIPLE) * _MULTIPLE, _SEQ_LEN_MAX, context)
    if given > context:
        raise ConfigError(
            f"`seq_len` must be at most the context of the base, {context}; got {given}: lower it"
        )
    return given


def _told(encoded: EncodedPreferences, longest: int) -> EncodedChats:
    """Return documents with their counts."""
    documents = encoded.documents
    trained = sum(int(documents.targets(i)[1:].sum()) for i in range(len(documents)))
    counts = ChatCounts(
        chats=len(encoded) + encoded.dropped,
        documents=len(documents),
        tokens=int(documents.ids.size),
        trained=trained,
        longest=longest,
        cut=encoded.cut,
        dropped=encoded.dropped,
    )
    return EncodedChats(documents, counts)


def _chosen(documents: Documents, numbers: Iterable[int]) -> Documents:
    kept = [int(i) for i in numbers]
    return Documents.of([documents[i] for i in kept], [documents.targets(i) for i in kept])


class Reference:
    """Log-probabilities of a run's answers under the model that training begins with.

    Args:
        config: of the run.
        examples: its data.
        base: checksum of the base.
        path: the file of the run's folder; its numbers are taken where they are of this run.
    """

    def __init__(
        self, config: FinetuneConfig, examples: PreferenceExamples, base: int, path: Path
    ) -> None:
        self._config, self._examples, self._base = config, examples, base
        shared = config.preferences.reference
        if shared is not None and not Path(shared).absolute().parent.is_dir():
            raise ConfigError(
                f"`reference`={shared} must be in a folder that exists; {Path(shared).parent} does "
                "not: make it, or name another file"
            )
        self._paths = [path] if shared is None else [Path(shared), path]
        self._parts: list[Documents] = []
        for each in examples.pairs:
            self._parts.append(each.documents)
            if config.preferences.method == "kto":
                if len(each.documents) < 2:
                    raise ConfigError(
                        "`method`=kto needs two rows or more for training and for validation; got "
                        "1: give more rows, or `val_fraction`=0"
                    )
                self._parts.append(mismatched(each.documents, examples.seq_len))
        self._key: dict[str, Any] | None = None
        self._found: np.ndarray | None = None

    def write(self) -> None:
        """Write the numbers into the files.

        Raises:
            OSError: a file cannot be written.
        """
        if self._key is None or self._found is None:
            return
        for path in self._paths:
            write_reference(path, self._key, self._found)

    def compute(self, model: Any) -> None:
        """Compute the numbers, or read them.

        Args:
            model: the model before its first step.

        Raises:
            FormatError: a file of them is damaged.
        """
        joined = _joined(self._parts)
        # Adapters that begin at zero leave the base as it is.
        started = changes_base(model, self._config.model)
        # As many rows as a batch has, whose products are then the same.
        rows = [self._rows(len(part)) for part in self._parts]
        seq_len = self._examples.seq_len
        precision = self._config.trainer.precision
        options = {"rows": rows, "seq_len": seq_len, "precision": precision}
        self._key = reference_key(joined, checksum(model) if started else self._base, options)
        for path in self._paths:
            try:
                self._found = read_reference(path, self._key)
            except FormatError as error:
                raise FormatError(f"`reference`: {reason(error)}") from error
            if self._found is not None:
                return
        parts = zip(self._parts, rows, strict=True)
        found = [document_logps(model, part, count, seq_len) for part, count in parts]
        self._found = np.concatenate(found)

    def _rows(self, documents: int) -> int:
        """Return the rows of a batch of a part that has so many documents."""
        width = 1 if self._config.preferences.method == "kto" else 2
        return min(int(self._config.trainer.value("batch_size")) * width, documents)

    def loaders(self, needed: bool) -> list[Any]:
        """Return the batches to train on and, if there are any, to validate on.

        Args:
            needed: whether the batches have the log-probabilities.
        """
        config, examples = self._config, self._examples
        numbers: list[Any] = [None] * len(self._parts)
        if needed:
            assert self._found is not None
            ends = np.cumsum([len(part) for part in self._parts])[:-1]
            numbers = np.split(self._found, ends)
        found = []
        for i, each in enumerate(examples.pairs):
            rows: Any
            if config.preferences.method == "kto":
                rows = JudgedDataset(
                    each, numbers[2 * i], self._parts[2 * i + 1], numbers[2 * i + 1],
                    examples.seq_len,
                )  # fmt: skip
            else:
                rows = PairDataset(each, numbers[i], examples.seq_len)
            size = min(config.trainer.value("batch_size"), len(rows))
            training = i == 0
            found.append(
                Loader(rows, size, shuffle=training, seed=config.trainer.seed, drop_last=training)
            )
        return found


def _joined(parts: list[Documents]) -> Documents:
    """Return documents one after another."""
    ids = [part[i] for part in parts for i in range(len(part))]
    flags = [part.targets(i) for part in parts for i in range(len(part))]
    return Documents.of(ids, flags)
