# SPDX-License-Identifier: MIT
"""A tensor's numbers as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import RecordingError, in_message
from .tracing import check_read

__all__ = ["written"]

_SHOWN = 1000  # most elements that are written, or computed to be written
_READ = 1 << 20  # most that are read


def written(x: Any, computed: bool) -> str:
    """Return a tensor's numbers, or its description where they take long or cannot be had."""
    if in_message() or x.numel() > (_READ if computed else _SHOWN) or not _readable(x):
        description: str = x.describe()
        return description
    try:
        values = x.numpy()
    except Exception:  # noqa: BLE001  (a repr tells of what cannot be computed, too)
        return str(x.describe())
    numbers = np.array2string(
        values, separator=", ", prefix="tensor(", threshold=_SHOWN, floatmode="maxprec"
    )
    shape = f", shape={x.shape}" if x.numel() > _SHOWN else ""
    grad = ", requires_grad=True" if x.requires_grad else ""
    return f"tensor({numbers}{shape}, dtype={x.dtype.name}, device={x.device.name!r}{grad})"


def _readable(x: Any) -> bool:
    """Return False while a function is recorded to run many times."""
    try:
        check_read(x.node)
    except RecordingError:
        return False
    return True
