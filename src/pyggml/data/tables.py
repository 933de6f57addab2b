# SPDX-License-Identifier: MIT
"""Tables of files and data frames as rows of numbers with their targets."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import checks
from ..errors import FormatError, shown
from .arrays import TABLE_TASKS, ArrayDataset
from .rounding import check_rounding
from .text.records import no_rows, read_records

__all__ = ["read_table"]

_TRUTH = {"true": 1.0, "false": 0.0}
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


def read_table(
    source: Any,
    target: str | Sequence[str],
    task: str | None = None,
    columns: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> ArrayDataset:
    """Read a table as rows of numbers with a target each.

    A column of `True` and `False` is one of 1 and 0.

    Args:
        source: a CSV, JSONL or Parquet file, rows or a Hugging Face dataset as `read_records`
            takes them, or a data frame of pandas.
        target: the column to predict, or several.
        task: "classification", "regression" or "multi_label"; None is a classification where the
            target is text and a regression where it has decimals.
        columns: that are the inputs, in their order; None takes all others than the target.
        labels: names of the classes in their order; None takes those that occur.

    Returns:
        The dataset, with `columns` in the order of `x`.

    Raises:
        FormatError: a value is missing or is no number, a column is constant, or all targets are
            of one class; the message names row and column.
        ValueError: there is no such column, or the task must be given.

    Example:
        >>> rows = [{"width": 1.0, "kind": "iris"}, {"width": 2.5, "kind": "rose"}]
        >>> table = read_table(rows, target="kind")
        >>> table.x.tolist(), table.y.tolist(), table.labels
        ([[1.0], [2.5]], [0, 1], ('iris', 'rose'))
    """
    who = "read_table"
    targets = (target,) if isinstance(target, str) else checks.names(who, "target", target)
    if task is not None:
        checks.choice(who, "task", task, TABLE_TASKS)
    if hasattr(source, "to_dict") and hasattr(source, "columns"):
        source = source.to_dict("records")
    rows = [(str(getattr(row, "where", f"row {i}")), row) for i, row in
            enumerate(read_records(source))]  # fmt: skip
    if not rows:
        raise no_rows(who, source, "one row")
    there = list(rows[0][1])
    inputs = [name for name in there if name not in targets]
    if columns is not None:
        inputs = list(checks.names(who, "columns", columns))
    unknown = [name for name in (*targets, *inputs) if name not in there]
    if unknown or not inputs or not targets:
        raise ValueError(
            f"{who}: target and columns must be among {', '.join(map(shown, there))}; got "
            f"{', '.join(map(shown, unknown)) or 'none'}"
        )
    x = np.column_stack([_number_column(rows, name) for name in inputs])
    for name, column in zip(inputs, x.T, strict=True):
        if len(rows) > 1 and (column == column[0]).all():
            raise FormatError(
                f"{who}: column {name!r} must vary; got {column[0]:g} in all {len(rows):,} rows, "
                "which tells nothing: leave it out of columns"
            )
    check_rounding(who, "x", x, inputs)
    dataset = _with_targets(rows, x.astype(np.float32), targets, task, labels)
    dataset.columns = tuple(inputs)
    return dataset


def _with_targets(
    rows: Any, x: np.ndarray, names: Sequence[str], task: str | None, labels: Any
) -> ArrayDataset:
    """Return the dataset of rows with the targets of their columns."""
    if task in ("regression", "multi_label") or (task is None and len(names) > 1):
        y = np.column_stack([_number_column(rows, name) for name in names])
        several = task == "multi_label"
        return ArrayDataset(x, y if several or len(names) > 1 else y[:, 0], task,
                            tuple(names) if several else None)  # fmt: skip
    if len(names) > 1:
        raise ValueError(
            f"read_table: target of a classification must be one column; got {len(names)}: give "
            "task='multi_label'"
        )
    values = [_present(row, names[0], where) for where, row in rows]
    numbers = [_as_number(value) for value in values]
    if task is None and all(number is not None for number in numbers):
        if all(number.is_integer() for number in numbers if number is not None):
            raise ValueError(
                f"read_table: task must be given for column {names[0]!r} of whole numbers: "
                "'classification' or 'regression'"
            )
        return ArrayDataset(x, np.asarray(numbers, np.float64), "regression")
    classes = [_class_name(value) for value in values]
    if len(set(classes)) < 2:
        raise FormatError(
            f"read_table: column {names[0]!r} must have two classes or more; got {classes[0]!r} in "
            f"all {len(rows):,} rows: choose another target"
        )
    if labels is None:
        labels = _in_order(set(classes))
    return ArrayDataset(x, np.asarray(classes, object), "classification", labels)


def _in_order(classes: set[str]) -> list[str]:
    """Return classes in the order of their numbers, or of the alphabet."""
    if all(name.removeprefix("-").isdecimal() for name in classes):
        return sorted(classes, key=int)
    return sorted(classes)


def _class_name(value: Any) -> str:
    """Return the name of a class: whole numbers without a point."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip()


def _present(row: Any, name: str, where: str) -> Any:
    """Return the value of a row, which must not be missing."""
    value = row.get(name)
    blank = isinstance(value, str) and value.strip().lower() in _MISSING
    if value is None or blank or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        raise FormatError(
            f"read_table: {where}: column {name!r} must have a value; got {shown(value)}: fill "
            "the gap, or leave the row or the column out"
        )
    return value


def _as_number(value: Any) -> float | None:
    """Return a value as a number; None if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _number_column(rows: Any, name: str) -> np.ndarray:
    """Return a column of numbers."""
    found = []
    for where, row in rows:
        value = _present(row, name, where)
        number = _as_number(value)
        if number is None and isinstance(value, str):
            number = _TRUTH.get(value.strip().lower())
        if number is None:
            raise FormatError(
                f"read_table: {where}: column {name!r} must hold finite numbers; got "
                f"{shown(value)}: {_cure(value)}"
            )
        found.append(number)
    return np.asarray(found, np.float64)


def _cure(value: Any) -> str:
    """Say what to do with a value that is no number."""
    text = value.strip() if isinstance(value, str) else ""
    cure = "mend the row, or leave the column out of columns"
    point = "write a point for the comma, or give pandas.read_csv(file, decimal=',')"
    if _THOUSANDS.fullmatch(text):
        whole = "write no commas between thousands, or give pandas.read_csv(file, thousands=',')"
        return whole if text.count(",") > 1 or "." in text else f"{whole}; for decimals {point}"
    if _as_number(text.replace(",", ".")) is not None:
        return point
    if not text or text.lstrip("+-").lower() in ("inf", "infinity"):
        return cure
    return f"make a column of each category, as pandas.get_dummies(frame) does; {cure}"
