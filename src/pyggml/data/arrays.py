# SPDX-License-Identifier: MIT
"""Rows of arrays as a dataset: tables, measurements and other numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..errors import ShapeError, shown
from .dataset import IGNORE_INDEX
from .rounding import check_rounding

__all__ = ["TABLE_TASKS", "ArrayDataset", "as_dataset"]

TABLE_TASKS = ("classification", "regression", "multi_label")


class ArrayDataset:
    """Arrays of inputs and targets with one row for each item; give it to a `Loader`.

    Args:
        x: inputs, one row each.
        y: targets: classes as integers or names, numbers to predict, or for each label whether a
            row has it. With a task of classes decimals without a fraction are classes, too.
        task: "classification", "regression" or "multi_label"; None is what y tells: decimals are a
            regression, truth values (N, labels) are several labels, all else are classes.
        labels: names of the classes or labels; None takes those of y where it has names, in the
            order of the alphabet.

    Attributes:
        x: inputs, f32 or i32; memory maps stay such.
        y: targets, f32 or i32.
        task: what the targets are.
        is_task_given: whether the task was given, and not taken from y.
        labels: names of the classes or labels, or None.
        columns: names of the columns of x, where `read_table` made it.

    Shape:
        x (N, ...), y (N, ...); a batch has B of the rows

    Raises:
        ShapeError: there is no row, or not as many targets as inputs.
        ValueError: an array holds no numbers, or a number that is not finite; or the targets are
            not those of the task.

    Warns:
        UserWarning: f32 makes different numbers of a column the same, as times in seconds.

    Example:
        >>> table = ArrayDataset([[5.1, 3.5], [6.2, 2.9], [4.9, 3.0]], ["iris", "rose", "iris"])
        >>> x, y = table.batch(np.array([2, 1]))
        >>> x.dtype, y.tolist(), table.labels
        (dtype('float32'), [0, 1], ('iris', 'rose'))
    """

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        task: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        who = "ArrayDataset"
        self.x = _numbers("x", x)
        if not isinstance(self.x, np.memmap):
            check_rounding(who, "x", np.asanyarray(x))
        self.columns: tuple[str, ...] | None = None
        given: np.ndarray = np.asanyarray(y)
        self.is_task_given = task is not None
        if task is None:
            several = given.dtype.kind == "b" and given.ndim == 2
            task = "regression" if given.dtype.kind == "f" else TABLE_TASKS[2 * several]
        self.task = checks.choice(who, "task", task, TABLE_TASKS)
        self.labels = None if labels is None else checks.names(who, "labels", labels)
        if self.task == "classification" and given.dtype.kind in "OU":
            given = self._numbered(given)
        if self.task == "classification" and given.dtype.kind == "f":
            given = _whole_classes(given)
        self.y = _numbers("y", given)
        if self.task == "regression":
            check_rounding(who, "y", given)
        if self.task != "classification":
            self.y = self.y.astype(np.float32, copy=False)
        if self.task == "multi_label" and (
            self.y.ndim != 2 or self.y.min(initial=0) < 0 or self.y.max(initial=0) > 1
        ):
            raise ValueError(
                f"{who}: y of several labels must be (N, labels), 1 where a row has the label and "
                f"0 where not; got shape {self.y.shape}, {self.y.min(initial=0):g} to"
                f" {self.y.max(initial=0):g}"
            )
        wrong = self.y[(self.y < 0) & (self.y != IGNORE_INDEX)]
        if self.task == "classification" and wrong.size:
            raise ValueError(
                f"{who}: y must number the classes from 0; got {wrong[0]}: give y.astype(str),"
                " whose names are kept with the model, or np.unique(y, return_inverse=True)[1]"
            )
        if not self.x.ndim or not self.x.size or self.y.shape[:1] != self.x.shape[:1]:
            raise ShapeError(
                f"{who}: x and y must have as many rows, at least one; got shapes"
                f" {self.x.shape} and {self.y.shape}"
            )
        if self.labels is not None and self.outputs > len(self.labels):
            raise ValueError(
                f"{who}: labels must be a name for each of {self.outputs}; got {self.labels}"
            )

    def _numbered(self, names: np.ndarray) -> np.ndarray:
        """Return the numbers of classes that are named."""
        for row, name in enumerate(names.ravel().tolist()):
            if not isinstance(name, str) or not name.strip():
                raise ValueError(
                    f"ArrayDataset: y must hold a name in each row; got {name!r} in row {row}: "
                    "leave the row out, or name its class"
                )
        if self.labels is None:
            self.labels = tuple(np.unique(names).tolist())
        number = {name: i for i, name in enumerate(self.labels)}
        unknown = [name for name in names.ravel().tolist() if name not in number]
        if unknown:
            raise ValueError(
                f"ArrayDataset: y must be among labels {self.labels}; got {unknown[0]!r}"
            )
        numbers = [number[name] for name in names.ravel().tolist()]
        return np.asarray(numbers, np.int32).reshape(names.shape)

    @property
    def outputs(self) -> int:
        """Numbers that a model returns for a row: one for each class, label or target."""
        if self.task == "classification":
            highest = int(self.y.max()) + 1 if self.y.dtype.kind == "i" else self.y.shape[-1]
            return max(highest, len(self.labels or ()))
        return int(np.prod(self.y.shape[1:]))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.x)

    def __repr__(self) -> str:
        labels = "" if self.labels is None else f", labels={shown(self.labels)}"
        return f"ArrayDataset(x={self.x.shape}, y={self.y.shape}, task={self.task!r}{labels})"

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Row numbers of an epoch; in natural order without a generator."""
        if rng is None:
            return np.arange(len(self))
        checks.instance("ArrayDataset.order", "rng", rng, np.random.Generator)
        return rng.permutation(len(self))

    def batch(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbered rows."""
        try:
            return self.x[items], self.y[items]
        except (IndexError, OverflowError):
            raise IndexError(
                f"ArrayDataset.batch: items must be numbers of rows below {len(self)}; got"
                f" {shown(items)}"
            ) from None

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
        seed = checks.whole("ArrayDataset.split", "seed", seed, 0)
        chosen = np.random.default_rng(seed).permutation(len(self))
        held = min(max(1, round(fraction * len(self))), len(self) - 1)
        first, second = np.sort(chosen[held:]), np.sort(chosen[:held])
        return self._of(first), self._of(second)

    def _of(self, rows: np.ndarray) -> ArrayDataset:
        """Return some of the rows."""
        part = ArrayDataset(self.x[rows], self.y[rows], self.task, self.labels)
        part.columns, part.is_task_given = self.columns, self.is_task_given
        return part


def as_dataset(given: Any, like: Any = None) -> Any:
    """Return an `ArrayDataset` of a pair of arrays (x, y); anything else as it is.

    Args:
        given: what may be such a pair, as Keras takes it: a tuple of arrays, tensors or columns of
            a data frame.
        like: a dataset whose task and labels the pair has, if it is an `ArrayDataset`.

    Example:
        >>> as_dataset((np.zeros((4, 2)), np.array([0, 1, 1, 0])))
        ArrayDataset(x=(4, 2), y=(4,), task='classification')
    """
    if not isinstance(given, tuple) or len(given) != 2:
        return given
    if not all(hasattr(each, "__array__") and np.ndim(each) for each in given):
        return given
    x, y = (np.asarray(each) for each in given)
    if not isinstance(like, ArrayDataset):
        return ArrayDataset(x, y)
    return ArrayDataset(x, y, like.task, like.labels if y.dtype.kind in "OU" else None)


def _whole_classes(y: np.ndarray) -> np.ndarray:
    """Return numbers of classes that are decimals as integers; probabilities (N, C) as they are."""
    if y.ndim > 1 and y.shape[-1] > 1:
        return y
    bad = y[~(np.isfinite(y) & (y == np.rint(y)))]
    if bad.size:
        raise ValueError(
            f"ArrayDataset: y must number the classes of a classification; got {bad[0]:g}: give "
            "whole numbers, or task='regression' for numbers to predict"
        )
    return y.astype(np.int64).reshape(len(y)) if y.ndim else y


def _numbers(name: str, given: ArrayLike) -> np.ndarray:
    """An array of f32 or i32."""
    array: np.ndarray = np.asanyarray(given)
    if array.dtype.kind not in "iufb":
        raise ValueError(
            f"ArrayDataset: {name} must hold numbers; got {array.dtype}; give each category a"
            " column, as pandas.get_dummies(frame) does, or a number, as"
            " np.unique(column, return_inverse=True) does"
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
