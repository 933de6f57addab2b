# SPDX-License-Identifier: MIT
"""Rows of arrays as a dataset: tables, measurements and other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ShapeError

__all__ = ["ArrayDataset"]


class ArrayDataset:
    """Arrays of inputs and targets with one row for each item; give it to a `Loader`.

    Args:
        x: inputs, one row each.
        y: targets: classes as integers, or numbers to predict.

    Attributes:
        x: inputs, f32 or i32; memory maps stay such.
        y: targets, f32 or i32.

    Shape:
        x (N, ...), y (N, ...); a batch has B of the rows

    Raises:
        ShapeError: there is no row, or not as many targets as inputs.
        ValueError: an array holds no numbers, or a number that is not finite.

    Example:
        >>> table = ArrayDataset([[5.1, 3.5], [6.2, 2.9], [4.9, 3.0]], [0, 1, 0])
        >>> x, y = table.batch(np.array([2, 0]))
        >>> x.dtype, y.tolist()
        (dtype('float32'), [0, 0])
    """

    def __init__(self, x: ArrayLike, y: ArrayLike) -> None:
        self.x, self.y = _numbers("x", x), _numbers("y", y)
        if not self.x.ndim or not self.x.size or self.y.shape[:1] != self.x.shape[:1]:
            raise ShapeError(
                "ArrayDataset: x and y must have as many rows, at least one; got shapes"
                f" {self.x.shape} and {self.y.shape}"
            )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.x)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Row numbers of an epoch; in natural order without a generator."""
        return np.arange(len(self)) if rng is None else rng.permutation(len(self))

    def batch(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbered rows."""
        return self.x[items], self.y[items]

    def split(self, fraction: float, seed: int = 0) -> tuple[ArrayDataset, ArrayDataset]:
        """Split the rows at random into training and validation.

        Args:
            fraction: share of the validation rows, > 0 and < 1.
            seed: of the choice.

        Returns:
            The training rows and the validation rows, at least one each.

        Raises:
            ValueError: the fraction is out of range, or there is only one row.

        Example:
            >>> rows = ArrayDataset(np.zeros((10, 2)), np.arange(10) % 2)
            >>> train, validation = rows.split(0.2)
            >>> len(train), len(validation)
            (8, 2)
        """
        number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
        if not number or not 0 < fraction < 1 or len(self) < 2:
            raise ValueError(
                "ArrayDataset.split: fraction must be > 0 and < 1, of at least two rows; got"
                f" {fraction!r} of {len(self)}"
            )
        chosen = np.random.default_rng(seed).permutation(len(self))
        held = min(max(1, round(fraction * len(self))), len(self) - 1)
        first, second = np.sort(chosen[held:]), np.sort(chosen[:held])
        parts = (ArrayDataset(self.x[rows], self.y[rows]) for rows in (first, second))
        return next(parts), next(parts)


def _numbers(name: str, given: ArrayLike) -> np.ndarray:
    """An array of f32 or i32."""
    array: np.ndarray = np.asanyarray(given)
    if array.dtype.kind not in "iufb":
        raise ValueError(
            f"ArrayDataset: {name} must hold numbers; got {array.dtype}; give each category a"
            " number, as np.unique(column, return_inverse=True) does"
        )
    wanted: Any = np.float32 if array.dtype.kind == "f" else np.int32
    if array.dtype == wanted and isinstance(array, np.memmap):
        return array
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"ArrayDataset: {name} must be finite; got {array[bad]} at {bad}; leave the row out or"
            " fill the gap"
        )
    limits = np.iinfo(np.int32)
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise ValueError(f"ArrayDataset: {name} must fit into int32; got {low} to {high}")
    return np.ascontiguousarray(array, wanted)
