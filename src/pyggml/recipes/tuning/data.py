# SPDX-License-Identifier: MIT
"""The examples of a fine-tuning: tokens, which of them are trained, and rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...data import (
    BucketLoader,
    Documents,
    Loader,
    PackedDataset,
    Tokenizer,
    encode_pairs,
    read_pairs,
)
from ...data.dataset import IGNORE_INDEX
from ...errors import ConfigError, FormatError, reason
from .config import FinetuneConfig

__all__ = ["Examples", "default_seq_len", "loaders", "pieces", "read_examples", "turns"]

_SEQ_LEN_MAX = 1024
_MULTIPLE = 32
_SHOWN_MAX = 400


@dataclass(frozen=True)
class Examples:
    """Examples as tokens.

    Args:
        documents: tokens of each, and which of them the loss counts.
        told: their format and what was left out, in words.
        stop_ids: tokens that end an answer.
        template: the chat template, or None where there is none.
    """

    documents: Documents
    told: str
    stop_ids: frozenset[int]
    template: str | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def crc32(self) -> int:
        """A checksum of the tokens and of which are trained."""
        crc = zlib.crc32(np.asarray(self.documents.ids, np.int32).tobytes())
        crc = zlib.crc32(np.asarray(self.documents.offsets, np.int64).tobytes(), crc)
        counted = self.documents.counted
        return crc if counted is None else zlib.crc32(counted.tobytes(), crc)


def read_examples(config: FinetuneConfig, model: Any, tokenizer: Tokenizer) -> Examples:
    """Read and encode the examples.

    Args:
        config: of the run.
        model: the base, whose file may have a chat template.
        tokenizer: text to tokens.

    Raises:
        FormatError: a file is missing or damaged, or a row is no example; names it.
        ConfigError: an option does not suit the files.
    """
    try:
        documents = encode_pairs(read_pairs(config.data.data), tokenizer)
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise ConfigError(f"`data`: {reason(error)}") from error
    stop = frozenset(() if tokenizer.eos_id is None else (tokenizer.eos_id,))
    return Examples(documents, "prompts and completions", stop)


def default_seq_len(config: FinetuneConfig, documents: Documents, context: int) -> int:
    """Return the tokens of a row: as given, or those of the longest example within bounds.

    Args:
        config: of the run.
        documents: the examples.
        context: longest sequence of the base.

    Raises:
        ConfigError: the rows given are longer than the context.
    """
    given = config.data.seq_len
    if given is not None:
        if given > context:
            raise ConfigError(
                f"`seq_len` must be at most the context of the base, {context}; got {given}: "
                "lower it"
            )
        return given
    longest = max(int(documents.lengths.max(initial=0)) - 1, 1)
    return min(-(-longest // _MULTIPLE) * _MULTIPLE, _SEQ_LEN_MAX, context)


def loaders(
    config: FinetuneConfig, documents: Documents, seq_len: int
) -> tuple[Any, Any, Documents, Documents | None]:
    """Return batches to train on and to validate on, and the examples of each.

    Args:
        config: of the run.
        documents: the examples.
        seq_len: tokens of a row.

    Raises:
        ConfigError: there are too few examples.
    """
    data, train, rest = config.data, documents, None
    try:
        if data.val_fraction:
            order = np.random.default_rng(config.trainer.seed).permutation(len(documents))
            train, rest = _reordered(documents, order).split(data.val_fraction)
        made = _loader(config, train, seq_len, True)
        validation = None if rest is None else _loader(config, rest, seq_len, False)
    except ValueError as error:
        raise ConfigError(
            f"`data`, `val_fraction`={data.val_fraction}, `seq_len`={seq_len}: {reason(error)}: "
            "give more examples, or a larger `seq_len`"
        ) from error
    return made, validation, train, rest


def _reordered(documents: Documents, order: np.ndarray) -> Documents:
    """Return the documents in another order: files are often sorted."""
    sequences = [documents[int(i)] for i in order]
    if documents.counted is None:
        return Documents.of(sequences)
    return Documents.of(sequences, [documents.targets(int(i)) for i in order])


def _loader(config: FinetuneConfig, documents: Documents, seq_len: int, training: bool) -> Any:
    """Return batches of rows: packed, or of one example each."""
    data, size = config.data, config.trainer.value("batch_size")
    seed = config.trainer.seed
    if not data.packing:
        return BucketLoader(
            documents, size * seq_len, seq_len=seq_len, overlong=data.overlong,
            shuffle=training, seed=seed,
        )  # fmt: skip
    rows = PackedDataset(documents, seq_len, data.overlong)
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
    segments = batch.inputs["segments"][row] if batch.inputs else np.zeros(x.size, np.int32)
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
