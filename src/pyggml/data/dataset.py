# SPDX-License-Identifier: MIT
"""The interface of a dataset, and the target that losses ignore."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["IGNORE_INDEX", "Dataset"]

IGNORE_INDEX = -100
"""The target that losses do not count; PyTorch's default."""


@runtime_checkable
class Dataset(Protocol):
    """The methods of a dataset that a `Loader` calls."""

    def __len__(self) -> int:
        """Number of items in an epoch."""

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch; in natural order without a generator."""

    def batch(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the numbered items, stacked along a new first axis."""
