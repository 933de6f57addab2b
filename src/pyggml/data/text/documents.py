# SPDX-License-Identifier: MIT
"""Token sequences of different lengths, one after another in one array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...errors import FormatError
from ..fingerprint import fingerprint
from .ids import ids_in_range, token_stream

__all__ = ["Documents"]


class Documents:
    """Documents as token ids, each of its own length.

    Document i is `ids[offsets[i] : offsets[i + 1]]`. The arrays may be memory-mapped: a document
    is read when it is asked for.

    Args:
        ids: tokens of all documents.
        offsets: where each begins, and at the end the number of tokens.
        counted: which tokens the loss counts when they are targets; None counts all. A prompt is
            what is not counted.

    Shape:
        ids (N,), offsets (D + 1,), counted (N,)

    Raises:
        ValueError: ids are none, or the offsets do not ascend from 0 to N.

    Example:
        >>> documents = Documents.of([[1, 2, 3], [4, 5]])
        >>> len(documents), documents[1].tolist(), documents.lengths.tolist()
        (2, [4, 5], [3, 2])
    """

    def __init__(
        self, ids: np.ndarray, offsets: np.ndarray, counted: np.ndarray | None = None
    ) -> None:
        self.ids = token_stream(ids, "Documents")
        self.offsets = np.asanyarray(offsets)
        whole = self.offsets.ndim == 1 and self.offsets.size
        ends = self.offsets[[0, -1]].tolist() if whole else None
        if ends != [0, self.ids.size] or self.offsets.dtype.kind not in "iu":
            raise ValueError(
                f"Documents: offsets must be integers (D + 1,) from 0 to {self.ids.size}; got shape"
                f" {self.offsets.shape}, dtype {self.offsets.dtype}, ends {ends}"
            )
        if (self.lengths < 0).any():
            raise ValueError("Documents: offsets must ascend; got one below that before it")
        self.counted = None if counted is None else _flags(counted)
        if self.counted is not None and self.counted.shape != self.ids.shape:
            raise ValueError(
                f"Documents: counted must be as ids, {self.ids.shape}; got {self.counted.shape}"
            )

    @classmethod
    def of(
        cls, sequences: Iterable[ArrayLike], counted: Iterable[ArrayLike] | None = None
    ) -> Documents:
        """Join sequences.

        Args:
            sequences: token ids of each document.
            counted: for each document, which of its tokens the loss counts.

        Raises:
            ValueError: a sequence is no vector of token ids, or `counted` is of other lengths.
        """
        who = "Documents.of"
        arrays = [np.asarray(each) for each in checks.items(who, "sequences", sequences)]
        arrays = [a.astype(np.int32) if not a.size else a for a in arrays]
        parts = [token_stream(array, "Documents").astype(np.int32) for array in arrays]
        offsets = np.cumsum([0, *(part.size for part in parts)], dtype=np.int64)
        flags = None
        if counted is not None:
            masks = [_flags(mask) for mask in checks.items(who, "counted", counted)]
            if [m.shape for m in masks] != [p.shape for p in parts]:
                raise ValueError("Documents: counted must have a flag for every token")
            flags = np.concatenate([np.zeros(0, bool), *masks])
        return cls(np.concatenate([np.zeros(0, np.int32), *parts]), offsets, flags)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each document, (D,) int64."""
        return np.diff(np.asarray(self.offsets, np.int64))

    def fingerprint(self) -> int:
        """Return a checksum of the documents."""
        return fingerprint(
            self.ids, self.offsets, *([] if self.counted is None else [self.counted])
        )

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, item: int) -> np.ndarray:
        """Token ids of a document, (n,) int32."""
        return self.part(item)

    def part(self, item: int, start: int = 0, end: int | None = None) -> np.ndarray:
        """Token ids of a document from `start` to before `end`, without reading the others."""
        return np.array(ids_in_range(self.ids[self._span(item, start, end)], "Documents"), np.int32)

    def targets(self, item: int, start: int = 0, end: int | None = None) -> np.ndarray:
        """Return a flag for each token of a document, or of a part: whether the loss counts it."""
        span = self._span(item, start, end)
        if self.counted is None:
            return np.ones(span.stop - span.start, bool)
        return np.array(self.counted[span], bool)

    def split(self, validation: float = 0.1) -> tuple[Documents, Documents]:
        """Cut into documents to train on and, after them, documents to validate on.

        Args:
            validation: share of the documents in the second part, > 0 and < 1.

        Raises:
            ValueError: the share is out of range, or a part would be empty.
        """
        validation = checks.number("Documents.split", "validation", validation, above=0, below=1)
        cut = int(len(self) * (1.0 - validation))
        if not 0 < cut < len(self):
            raise ValueError(
                f"Documents.split: both parts must hold a document; got {len(self)} documents"
                f" with validation={validation}"
            )
        return self._part(0, cut), self._part(cut, len(self))

    def _part(self, start: int, end: int) -> Documents:
        low, high = int(self.offsets[start]), int(self.offsets[end])
        counted = None if self.counted is None else self.counted[low:high]
        offsets = np.asarray(self.offsets[start : end + 1], np.int64) - low
        return Documents(self.ids[low:high], offsets, counted)

    def _span(self, item: Any, first: int = 0, last: int | None = None) -> slice:
        """Return the slice of the tokens of a part of a document."""
        if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
            raise TypeError(f"Documents: an item is a number; got {type(item).__name__}")
        if not -len(self) <= item < len(self):
            raise IndexError(f"Documents: item must be below {len(self)}; got {item}")
        at = int(item) % len(self)
        start, end = int(self.offsets[at]), int(self.offsets[at + 1])
        if not 0 <= start <= end <= self.ids.size:
            raise FormatError(f"Documents: document {at} spans {start} to {end}, which is no span")
        inner = range(start, end)[
            _bound("start", first) : None if last is None else _bound("end", last)
        ]
        return slice(inner.start, max(inner.start, inner.stop))

    def __repr__(self) -> str:
        return f"Documents({len(self):,} documents, {self.ids.size:,} tokens)"


def check_documents(who: str, documents: Any) -> Documents:
    """Return documents; raise on another object."""
    cure = "give Documents.of(...), or the documents of a TokenStore"
    return checks.instance(who, "documents", documents, Documents, cure)


def _flags(counted: Any) -> np.ndarray:
    """True or False for each token; 1 and 0 do, too."""
    array = np.asanyarray(counted)
    if array.dtype.kind not in "biuf" and array.size:
        raise ValueError(f"Documents: counted must be True or False; got dtype {array.dtype}")
    return np.asarray(array, bool) if array.dtype != bool else array


def _bound(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"Documents: {name} must be a number of tokens; got {value!r}")
    return int(value)
