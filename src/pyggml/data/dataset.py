# SPDX-License-Identifier: MIT
"""The interface of a dataset, and the target that losses ignore."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from .. import checks

__all__ = ["IGNORE_INDEX", "Dataset", "check_rng", "item_numbers", "order_of"]

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


def check_rng(who: str, rng: np.random.Generator | None) -> np.random.Generator | None:
    """Return a source of chance, or None."""
    return None if rng is None else checks.instance(who, "rng", rng, np.random.Generator)


def order_of(who: str, count: int, rng: np.random.Generator | None) -> np.ndarray:
    """Return item numbers of an epoch: a permutation, or natural order without a generator."""
    generator = check_rng(who, rng)
    return np.arange(count) if generator is None else generator.permutation(count)


def item_numbers(who: str, items: ArrayLike, count: int | None, least: int = 0) -> np.ndarray:
    """Return numbers of items, from 0, as a vector.

    Args:
        count: how many items there are; None where numbers beyond it have a meaning.
        least: how many numbers there must be.

    Raises:
        IndexError: a number is out of range.
        TypeError: they are no whole numbers.
        ValueError: they are no vector, or too few.
    """
    found = np.asarray(checks.array(who, "items", items, 1, "iu"))
    if found.size < least:
        raise ValueError(f"{who}: items must be {least} number or more; got none")
    if found.size and (found.min() < 0 or (count is not None and found.max() >= count)):
        rule = "from 0" if count is None else f"from 0 to {count - 1}"
        raise IndexError(f"{who}: items must be {rule}; got {found.min()} to {found.max()}")
    return found
