# SPDX-License-Identifier: MIT
"""What classes of this package ask of their arguments, NumPy's numbers included."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["decimal", "flag", "text", "token_ids", "whole"]


def whole(who: str, name: str, value: Any, least: int, more: str = "") -> int:
    """An integer of at least so much; `more` says what else there may be."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{who}: {name} must be an integer >= {least}{more}; got {value!r}")
    return int(value)


def decimal(
    who: str, name: str, value: Any, low: float, high: float = math.inf, open_ends: bool = False
) -> float:
    """A finite number from `low` to `high`; with `open_ends` between the two."""
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if good:
        inside = low < value < high if open_ends else low <= value <= high
        good = bool(inside) and math.isfinite(value)
    if not good:
        span = f">= {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        if open_ends:
            span = f"> {low:g}" if high == math.inf else f"> {low:g} and < {high:g}"
        raise ValueError(f"{who}: {name} must be a number {span}; got {value!r}")
    return float(value)


def flag(who: str, name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{who}: {name} must be True or False; got {value!r}")
    return bool(value)


def text(who: str, name: str, value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{who}: {name} must be text; got {value!r}")
    return value


def token_ids(who: str, name: str, values: Any) -> tuple[int, ...]:
    """Token ids, each >= 0."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ValueError(f"{who}: {name} must be token ids, integers >= 0; got {values!r}")
    return tuple(whole(who, name, value, 0) for value in values)
