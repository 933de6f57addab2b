# SPDX-License-Identifier: MIT
"""DistillationDataset: items with what a teacher says of each token."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks
from ...data import Batch, Dataset
from ...data.batch import as_batch
from ...data.fingerprint import fingerprint
from .cache import TeacherCache

__all__ = ["DistillationDataset"]


class DistillationDataset:
    """The items of a dataset, with a teacher's most probable tokens as further inputs.

    Args:
        dataset: what the teacher read.
        cache: what `cache_teacher` gave for it.

    Attributes:
        seq_len: tokens of an item.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: the dataset has another number of items; an item that has changed raises when
            it is read.

    Example:
        >>> from pyggml.data import TokenDataset
        >>> dataset = TokenDataset(np.arange(33) % 65, seq_len=8)
        >>> both = DistillationDataset(dataset, cache_teacher(model, dataset, "said", top_k=4))
        >>> batch = both.batch(np.array([0, 2]))
        >>> {name: array.shape for name, array in batch.inputs.items()}
        {'teacher_ids': (2, 8, 4), 'teacher_logprobs': (2, 8, 4)}
    """

    def __init__(self, dataset: Dataset, cache: TeacherCache) -> None:
        who = "DistillationDataset"
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"{who}: dataset must have __len__, order and batch, as TokenDataset has; got "
                f"{type(dataset).__name__}"
            )
        self._cache = checks.instance(who, "cache", cache, TeacherCache)
        if len(dataset) != cache.items:
            raise ValueError(
                f"{who}: dataset must have the {cache.items} items that the teacher read; got "
                f"{len(dataset)}: cache it again"
            )
        self._dataset: Any = dataset
        self.seq_len = cache.length

    def __len__(self) -> int:
        """Number of items in an epoch."""
        return len(self._dataset)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch; in natural order without a generator."""
        order: np.ndarray = self._dataset.order(rng)
        return order

    def batch(self, items: np.ndarray) -> Batch:
        """Read items.

        Shape:
            items (B,) -> x (B, T), y (B, T), teacher_ids (B, T, K), teacher_logprobs (B, T, K)

        Raises:
            ValueError: an item is another than the teacher read.
        """
        batch = as_batch(self._dataset.batch(items))
        ids, logprobs = self._cache.read(np.asarray(items), batch.x, batch.y)
        return Batch(batch.x, batch.y, **batch.inputs, teacher_ids=ids, teacher_logprobs=logprobs)

    def fingerprint(self) -> int:
        """Return a number that other data, or another teacher, do not have."""
        own = getattr(self._dataset, "fingerprint", None)
        return fingerprint(0 if own is None else own(), self._cache.teacher, self._cache.top_k)
