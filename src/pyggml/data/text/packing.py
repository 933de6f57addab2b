# SPDX-License-Identifier: MIT
"""Documents of different lengths packed into rows of one length."""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from typing import Any

import numpy as np

from ... import checks
from ..batch import Batch
from ..dataset import IGNORE_INDEX, item_numbers, order_of
from ..fingerprint import fingerprint
from .documents import Documents, check_documents

__all__ = ["PackedDataset", "best_fit"]

_OVERLONG = ("split", "truncate", "drop")
_log = logging.getLogger("pyggml.data")


def best_fit(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Put pieces into few bins: the longest first, each into the bin with the least room left.

    Args:
        lengths: of the pieces, from 1 to the capacity.
        capacity: of a bin.

    Returns:
        For each bin the numbers of its pieces, in the order in which they were put there.

    Shape:
        lengths (P,)

    Raises:
        ValueError: a length is out of range.

    Source: best-fit decreasing, Johnson 1973; for training text: Ding et al. 2024,
        arXiv:2404.10830.

    Example:
        >>> best_fit(np.array([3, 5, 2, 4]), 8)
        [[1, 0], [3, 2]]
    """
    capacity = checks.whole("best_fit", "capacity", capacity, 1)
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise ValueError(
            "best_fit: lengths must be a vector of integers; got shape"
            f" {lengths.shape}, dtype {lengths.dtype}"
        )
    if lengths.size and not 1 <= lengths.min() <= lengths.max() <= capacity:
        raise ValueError(
            f"best_fit: lengths must be from 1 to the capacity {capacity}; got {lengths.min()} to"
            f" {lengths.max()}"
        )
    bins: list[list[int]] = []
    room: dict[int, list[int]] = {}  # bins by what is free in them
    free: list[int] = []  # the keys of `room`, ascending
    for piece in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[piece])
        at = bisect_left(free, length)
        if at == len(free):
            number, left = len(bins), capacity - length
            bins.append([])
        else:
            left = free[at] - length
            same = room[free[at]]
            number = same.pop()
            if not same:
                del room[free[at]], free[at]
        bins[number].append(piece)
        if left:
            if left not in room:
                insort(free, left)
                room[left] = []
            room[left].append(number)
    return bins


class PackedDataset:
    """Rows of T tokens, each filled with whole documents; give them to a `Loader`.

    Positions start anew with each document, and attention does not reach from one into the other:
    the loss and the gradients are those of the documents one by one. What is left at the end of a
    row is a segment of its own without targets.

    Args:
        documents: what to pack.
        seq_len: tokens in a row, T >= 1.
        overlong: what becomes of a document of more than T + 1 tokens: "split" makes pieces that
            do not see each other, "truncate" keeps the first, "drop" leaves the document out.
            A piece without a target that counts, such as one of a long prompt, is left out.

    Attributes:
        pieces: how many pieces are packed.
        skipped: how many were left out because no target of them counts.
        fill: share of the rows that is text, at most 1.

    Shape:
        item: x (T,), y (T,), positions (T,), segments (T,), all int32

    Raises:
        ValueError: no document has a token to predict that counts, or an option is out of range.

    Source: Krell et al. 2021, arXiv:2107.02027.

    Example:
        >>> documents = Documents.of([[1, 2, 3], [4, 5, 6, 7], [8, 9]])
        >>> batch = PackedDataset(documents, seq_len=5).batch(np.array([0]))
        >>> batch.x.tolist(), batch.y.tolist()
        ([[4, 5, 6, 1, 2]], [[5, 6, 7, 2, 3]])
        >>> batch.inputs["positions"].tolist(), batch.inputs["segments"].tolist()
        ([[0, 1, 2, 0, 1]], [[0, 0, 0, 1, 1]])
    """

    def __init__(self, documents: Documents, seq_len: int, overlong: str = "split") -> None:
        self.documents = check_documents("PackedDataset", documents)
        self.seq_len = checks.whole("PackedDataset", "seq_len", seq_len, 1)
        self.overlong = check_overlong("PackedDataset", overlong)
        self._pieces, self.skipped = cut_pieces("PackedDataset", documents, self.seq_len, overlong)
        lengths = self._pieces[:, 2]
        # Pieces that fill a row need no search: of a long text that is nearly all.
        full = np.flatnonzero(lengths == self.seq_len)
        rest = np.flatnonzero(lengths < self.seq_len)
        bins = best_fit(lengths[rest], self.seq_len)
        self._rows = np.concatenate([full, *(rest[np.array(b, np.int64)] for b in bins)])
        counts = np.array([len(b) for b in bins], np.int64)
        sizes = np.concatenate([np.ones(full.size, np.int64), counts])
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.pieces = len(self._pieces)
        self.fill = float(lengths.sum() / (sizes.size * self.seq_len))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._starts) - 1

    def fingerprint(self) -> int:
        """Return a checksum of the documents and of their rows."""
        return fingerprint(self.documents.fingerprint(), self.seq_len, self.overlong)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Row numbers of an epoch: a permutation, or natural order without a generator."""
        return order_of("PackedDataset.order", len(self), rng)

    def batch(self, items: np.ndarray) -> Batch:
        """Read rows.

        Shape:
            items (B,) -> x (B, T), y (B, T), positions (B, T), segments (B, T), all int32
        """
        items = item_numbers("PackedDataset.batch", items, len(self))
        shape = (items.size, self.seq_len)
        x, positions, segments = (np.zeros(shape, np.int32) for _ in range(3))
        y = np.full(shape, IGNORE_INDEX, np.int32)
        for row, item in enumerate(items):
            at = number = 0
            for piece in self._rows[self._starts[item] : self._starts[item + 1]]:
                document, start, length = self._pieces[piece]
                end = at + length
                x[row, at:end], y[row, at:end] = pair(self.documents, document, start, length)
                positions[row, at:end] = np.arange(length)
                segments[row, at:end] = number
                at, number = end, number + 1
            positions[row, at:] = np.arange(self.seq_len - at)
            segments[row, at:] = number
        return Batch(x, y, positions=positions, segments=segments)

    def __repr__(self) -> str:
        return (
            f"PackedDataset({len(self):,} rows of {self.seq_len}, {self.pieces:,} pieces,"
            f" {100 * self.fill:.1f}% text)"
        )


def check_overlong(who: str, overlong: str) -> str:
    """Raise a ValueError unless `overlong` is a known treatment of long documents."""
    if not isinstance(overlong, str) or overlong not in _OVERLONG:
        raise ValueError(f"{who}: overlong must be one of {', '.join(_OVERLONG)}; got {overlong!r}")
    return overlong


def pair(documents: Documents, document: Any, start: int, length: int) -> tuple[Any, Any]:
    """Inputs and targets of a part of a document; targets that do not count are ignored."""
    ids = documents.part(document, start, start + length + 1)
    y = ids[1:].copy()
    if documents.counted is not None:
        y[~documents.targets(document, start + 1, start + length + 1)] = IGNORE_INDEX
    return ids[:-1], y


def cut_pieces(
    who: str, documents: Documents, seq_len: int, overlong: str
) -> tuple[np.ndarray, int]:
    """Pieces (document, first input, inputs), at most `seq_len` long, that have a target.

    Pieces none of whose targets count teach nothing, and a batch of them alone cannot be trained
    on: they are left out, and how many is the second result.
    """
    inputs = np.maximum(documents.lengths - 1, 0)  # the last token is only a target
    if overlong == "drop":
        inputs = np.where(inputs > seq_len, 0, inputs)
    elif overlong == "truncate":
        inputs = np.minimum(inputs, seq_len)
    counts = -(-inputs // seq_len)
    document = np.repeat(np.arange(inputs.size), counts)
    number = np.arange(document.size) - np.repeat(np.cumsum(counts) - counts, counts)
    start = number * seq_len
    pieces = np.stack([document, start, np.minimum(inputs[document] - start, seq_len)], axis=1)
    if not len(pieces):
        raise ValueError(
            f"{who}: needs a document of at least two tokens"
            + (f" and at most {seq_len + 1}" if overlong == "drop" else "")
            + f"; got {len(documents)} documents, none of which is"
        )
    kept = pieces[_have_targets(documents, pieces)]
    skipped = len(pieces) - len(kept)
    if not len(kept):
        raise ValueError(
            f"{who}: needs a target that counts; got {len(documents)} documents with none in the"
            f" {skipped} pieces of at most {seq_len} tokens: use a longer seq_len, shorter prompts,"
            ' or another overlong than "truncate"'
        )
    if skipped:
        _log.warning(
            "%s: %d of %d pieces of at most %d tokens are left out: none of their targets counts;"
            " is a prompt longer than a row?",
            who, skipped, len(pieces), seq_len,
        )  # fmt: skip
    return kept, skipped


def _have_targets(documents: Documents, pieces: np.ndarray) -> np.ndarray:
    """Which pieces have a target that counts, (P,) bool."""
    if documents.counted is None:
        return np.ones(len(pieces), bool)
    document, start, length = pieces.T
    first = np.asarray(documents.offsets, np.int64)[document] + start + 1
    # A piece's targets lie between two of these bounds; the flag behind the last is none's.
    bounds = np.stack([first, first + length], axis=1).ravel()
    flags = np.append(documents.counted, False)
    return np.asarray(np.logical_or.reduceat(flags, bounds)[::2], bool)
