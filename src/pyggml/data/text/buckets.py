# SPDX-License-Identifier: MIT
"""Batches of documents of similar length, each with about the same number of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks
from ..batch import Batch
from ..dataset import IGNORE_INDEX
from ..loader import Epochs, Part
from .documents import Documents, check_documents
from .packing import check_overlong, cut_pieces, pair

__all__ = ["BucketLoader"]

# Rows are as long as a multiple of this: kernels like it, and it costs next to nothing.
_MULTIPLE = 8


class BucketLoader(Epochs):
    """Make batches of documents of similar length: few long rows, or many short ones.

    A batch has max_tokens // T rows of T tokens. There are no more shapes than buckets, so a
    training step is recorded as often. Rows are filled up on the right, where causal attention
    does not look; what is filled up has no targets. Empty rows complete a bucket's last batch.

    Args:
        documents: what to read; each row is one document, or a piece of one.
        max_tokens: tokens in a batch, at most, padding included.
        seq_len: longest row; None is as long as the longest document, at most max_tokens.
        buckets: how many lengths of rows there may be.
        overlong: what becomes of longer documents; see `PackedDataset`.
        shuffle: whether each epoch has a random order.
        seed: start of the random orders, >= 0.

    Attributes:
        shapes: (rows, tokens) of each bucket's batches.
        fill: share of the batches that is text, at most 1.
        skipped: how many pieces were left out because no target of them counts.

    Shape:
        batch: x (B, T), y (B, T), both int32

    Raises:
        ValueError: no document has a token to predict that counts, or a number is out of range.

    Example:
        >>> documents = Documents.of([np.arange(n) for n in (3, 30, 4, 5, 28, 9)])
        >>> loader = BucketLoader(documents, max_tokens=64, buckets=2)
        >>> sorted(next(loader).x.shape for _ in range(len(loader)))
        [(2, 29), (4, 8)]
    """

    def __init__(
        self,
        documents: Documents,
        max_tokens: int,
        *,
        seq_len: int | None = None,
        buckets: int = 8,
        overlong: str = "split",
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        who = "BucketLoader"
        self.documents = check_documents(who, documents)
        self.max_tokens = checks.whole(who, "max_tokens", max_tokens, 1)
        buckets = checks.whole(who, "buckets", buckets, 1)
        check_overlong(who, overlong)
        lengths = documents.lengths
        longest = max(int(lengths.max(initial=0)) - 1, 1)
        wanted = longest if seq_len is None else checks.whole(who, "seq_len", seq_len, 1)
        self.seq_len = min(wanted, self.max_tokens)
        if seq_len is not None and seq_len > self.max_tokens:
            raise ValueError(
                f"{who}: seq_len must be at most max_tokens={max_tokens}; got {seq_len}"
            )
        self._pieces, self.skipped = cut_pieces(who, documents, self.seq_len, overlong)
        self._bounds = _bounds(self._pieces[:, 2], buckets, self.seq_len)
        bucket = np.searchsorted(self._bounds, self._pieces[:, 2])
        self._members = [np.flatnonzero(bucket == b) for b in range(self._bounds.size)]
        # No more rows than there are documents for.
        self.shapes = [
            (min(self.max_tokens // int(t), max(1, m.size)), int(t))
            for t, m in zip(self._bounds, self._members, strict=True)
        ]
        counts = [
            -(-m.size // rows) for m, (rows, _) in zip(self._members, self.shapes, strict=True)
        ]
        self._count = sum(counts)
        size = sum(c * rows * t for c, (rows, t) in zip(counts, self.shapes, strict=True))
        self.fill = float(self._pieces[:, 2].sum() / size)
        fixed = {"max_tokens": self.max_tokens, "items": len(self._pieces)}
        super().__init__(seed, shuffle, fixed, documents)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._count

    @property
    def batch_size(self) -> int:
        """Rows of the batches that have the longest rows."""
        return self.shapes[-1][0]

    @property
    def dataset(self) -> BucketLoader:
        """The loader itself, as it has the attribute `seq_len` of a dataset."""
        return self

    def _make_order(self, rng: np.random.Generator | None) -> list[tuple[int, np.ndarray]]:
        """Batches as (bucket, pieces)."""
        plan = []
        for bucket, (members, (rows, _)) in enumerate(zip(self._members, self.shapes, strict=True)):
            drawn = members if rng is None else rng.permutation(members)
            plan += [(bucket, drawn[at : at + rows]) for at in range(0, drawn.size, rows)]
        return plan if rng is None else [plan[i] for i in rng.permutation(len(plan))]

    def _least_rows(self) -> int:
        return min(rows for rows, _ in self.shapes)

    def _batch(self, order: list[tuple[int, np.ndarray]], position: int, part: Part) -> Batch:
        bucket, pieces = order[position]
        rows, length = self.shapes[bucket]
        own = range(rows)[part.of(rows)]
        x = np.zeros((len(own), length), np.int32)
        y = np.full((len(own), length), IGNORE_INDEX, np.int32)
        for row, piece in enumerate(pieces[own.start : own.stop]):
            document, start, length = self._pieces[piece]
            x[row, :length], y[row, :length] = pair(self.documents, document, start, length)
        return Batch(x, y)

    def __repr__(self) -> str:
        return (
            f"BucketLoader({len(self):,} batches of up to {self.max_tokens} tokens,"
            f" shapes {self.shapes}, {100 * self.fill:.1f}% text)"
        )


def _bounds(lengths: np.ndarray, buckets: int, seq_len: int) -> Any:
    """Lengths of rows, ascending: quantiles of the pieces' lengths, rounded up."""
    shares = np.arange(1, buckets + 1) / buckets
    ends = np.quantile(lengths, shares, method="higher")
    rounded = -(-ends // _MULTIPLE) * _MULTIPLE
    return np.unique(np.minimum(rounded, seq_len)).astype(np.int64)
