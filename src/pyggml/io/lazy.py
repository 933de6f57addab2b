# SPDX-License-Identifier: MIT
"""Arrays that are read when they are written to a file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["LazyArray"]


@dataclass(frozen=True, eq=False)
class LazyArray:
    """An array whose numbers are fetched each time they are needed, and not kept.

    Args:
        shape: of the array.
        dtype: of its numbers, in the machine's order of bytes.
        read: returns the array.

    Example:
        >>> array = LazyArray((2,), np.dtype(np.float32), lambda: np.ones(2, np.float32))
        >>> array.nbytes, np.asarray(array).tolist()
        (8, [1.0, 1.0])
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], np.ndarray]

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        return math.prod(self.shape) * self.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the array, for NumPy."""
        found = np.asarray(self.read())
        return found if dtype is None else found.astype(dtype)
