# SPDX-License-Identifier: MIT
"""Columns of which f32 keeps too little: times in seconds, long numbers of rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import shown
from ..tensors.node import caller

__all__ = ["check_rounding"]

# A step of f32 over the range of a column. Numbers from 0 on have 2^-23 at most, so whole ones with
# more lie far from 0 beside their range; decimals are seldom known to a thousandth of it.
_WHOLE_MOST, _DECIMAL_MOST = 3e-7, 1e-3


def check_rounding(who: str, name: str, rows: np.ndarray, columns: Sequence[str] = ()) -> None:
    """Warn of columns whose rows become the same numbers in f32.

    Args:
        who: the function that stores them.
        name: what the rows are.
        rows: numbers as they were given.
        columns: names of the columns; () counts them.

    Shape:
        rows (N, ...)

    Warns:
        UserWarning: a column loses numbers.
    """
    if (
        not rows.ndim
        or len(rows) < 2
        or not rows.size
        or rows.dtype not in (np.float64, np.int64, np.int32)
    ):
        return
    table = rows.reshape(len(rows), -1)
    low, high = (np.asarray(each, np.float64) for each in (table.min(axis=0), table.max(axis=0)))
    step: Any = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32))
    for i in np.flatnonzero((high > low) & (step > _WHOLE_MOST * (high - low))):
        column = table[:, i].astype(np.float64)
        if (column == column.astype(np.float32)).all():
            continue
        whole = step[i] > 1 and bool((column == np.rint(column)).all())
        if whole or step[i] > _DECIMAL_MOST * (high[i] - low[i]):
            label = f"column {shown(columns[int(i)])}" if columns else f"column {i} of {name}"
            file, line = caller()
            warnings.warn_explicit(
                f"{who}: {label} goes from {low[i]:.15g} to {high[i]:.15g}, where f32 keeps steps "
                f"of {step[i]:g}: subtract its mean before, or leave it out if it only numbers the"
                " rows",
                UserWarning,
                file,
                line,
            )
