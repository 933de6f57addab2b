# SPDX-License-Identifier: MIT
"""Rows that a model can learn from: inputs and targets vary, and classes are numbered from 0."""

from __future__ import annotations

import warnings

import numpy as np

from ..errors import shown
from ..tensors.node import caller
from .arrays import ArrayDataset
from .dataset import IGNORE_INDEX

__all__ = ["check_guess", "check_variety"]

# Rows that are compared at first: few columns are left then.
_FIRST_ROWS = 1024


def check_variety(who: str, data: ArrayDataset) -> None:
    """Raise on rows that nothing can be learnt from, and warn of columns that tell nothing.

    Validation sets and parts of a table may be such.

    Args:
        who: the function that trains on them.
        data: its argument `train`; of a single row everything is allowed.

    Raises:
        ValueError: all inputs are the same, or all targets; or no class is 0 and the classes have
            no names.

    Warns:
        UserWarning: a column of a table is constant, a label is, or a class in between has no row.
    """
    if len(data) < 2:
        return
    if data.x.ndim == 2:
        constant = _constant_columns(data.x)
        if len(constant) == data.x.shape[1]:
            raise ValueError(
                f"{who}: train must have inputs x that vary; got the same in all"
                f" {len(data):,} rows: give other columns"
            )
        if len(constant):
            names = [data.columns[i] if data.columns else int(i) for i in constant]
            _warn(f"{who}: train has columns of x that are constant, {shown(names)}, and tell"
                  " nothing: leave them out")  # fmt: skip
    if data.task == "classification" and data.y.dtype.kind == "i":
        _check_classes(who, data)
    elif data.task != "classification":
        _check_targets(who, data)


def check_guess(who: str, data: ArrayDataset) -> None:
    """Raise where decimal targets, which are a regression by default, look like classes.

    Args:
        who: the function that makes a model for them.
        data: rows whose task may have been given.

    Raises:
        ValueError: the task must be given.
    """
    if data.task != "regression" or data.is_task_given:
        return
    y = data.y.reshape(len(data), -1)
    either = "or task='regression' if they are numbers to predict"
    if y.shape[1] > 1:
        if ((y == 0) | (y == 1)).all():
            one_each = (y.sum(axis=1) == 1).all()
            cure = "y.argmax(1)) for classes" if one_each else "y, task='multi_label')"
            raise ValueError(
                f"{who}: task must be given for targets y of decimals that are all 0 or 1, of shape"
                f" {data.y.shape}: give ArrayDataset(x, {cure}, {either}"
            )
        return
    highest = y.max()
    if y.min() == 0 and 1 <= highest < len(y) // 2:
        found = np.unique(y)
        if len(found) == highest + 1 and (found == np.arange(len(found))).all():
            raise ValueError(
                f"{who}: task must be given for targets y of decimals that are the whole numbers "
                f"from 0 to {highest:g}: give ArrayDataset(x, y, task='classification'), {either}"
            )


def _check_classes(who: str, data: ArrayDataset) -> None:
    found = np.unique(data.y)
    found = found[found != IGNORE_INDEX]
    if len(found) < 2:
        what = "no class" if not len(found) else f"class {_name(data, int(found[0]))}"
        raise ValueError(
            f"{who}: train must have targets y of two classes or more; got {what} in all"
            f" {len(data):,} rows: choose another target"
        )
    if data.labels is not None:
        return
    if found[0] != 0:
        raise ValueError(
            f"{who}: train must number its classes y from 0; got {found[0]} to {found[-1]}: give"
            " y.astype(str), whose names are kept with the model, or"
            " np.unique(y, return_inverse=True)[1]"
        )
    missing = np.setdiff1d(np.arange(found[-1]), found)
    if len(missing):
        _warn(
            f"{who}: train has classes y from 0 to {found[-1]}, but no row of"
            f" {shown(missing.tolist())}: give y.astype(str) if there are no such classes, or"
            " labels with their names"
        )


def _name(data: ArrayDataset, number: int) -> str:
    return str(number) if data.labels is None else repr(data.labels[number])


def _check_targets(who: str, data: ArrayDataset) -> None:
    columns = data.y.reshape(len(data), -1)
    constant = _constant_columns(columns)
    if len(constant) == columns.shape[1]:
        raise ValueError(
            f"{who}: train must have targets y that vary; got {columns[0, 0]:g} in all"
            f" {len(data):,} rows: choose another target"
        )
    if len(constant):
        names = [data.labels[i] if data.labels else int(i) for i in constant]
        _warn(f"{who}: train has targets y that are constant, {shown(names)}: leave them out")


def _constant_columns(rows: np.ndarray) -> np.ndarray:
    """Return the numbers of the columns that have one value in all rows."""
    first = np.asarray(rows[:_FIRST_ROWS])
    columns = np.flatnonzero((first == first[0]).all(axis=0))
    if len(columns) and len(rows) > len(first):
        columns = columns[(rows[:, columns] == rows[0, columns]).all(axis=0)]
    return columns


def _warn(message: str) -> None:
    file, line = caller()
    warnings.warn_explicit(message, UserWarning, file, line)
