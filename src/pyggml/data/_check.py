# SPDX-License-Identifier: MIT
"""What classes of this package ask of their arguments, NumPy's numbers included."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError

__all__ = [
    "check_floats",
    "check_image",
    "decimal",
    "flag",
    "path_like",
    "set_fields",
    "several",
    "token_ids",
    "whole",
]


def whole(
    who: str, name: str, value: Any, least: int, more: str = "", most: int = 2**63 - 1
) -> int:
    """An integer of at least so much; `more` says what else there may be."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{who}: {name} must be an integer >= {least}{more}; got {value!r}")
    if value > most:
        raise ValueError(f"{who}: {name} must be at most {most}; got {value}")
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
        if low == -math.inf:
            span = "a finite number"
        elif high == math.inf:
            span = f"finite and {'>' if open_ends else '>='} {low:g}"
        else:
            span = f"> {low:g} and < {high:g}" if open_ends else f"from {low:g} to {high:g}"
        raise ValueError(f"{who}: {name} must be {span}; got {value!r}")
    return float(value)


def flag(who: str, name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{who}: {name} must be True or False; got {value!r}")
    return bool(value)


def several(value: Any) -> bool:
    """Whether it can be gone through, and is no text."""
    text = isinstance(value, (str, bytes))
    return isinstance(value, Iterable) and not text and getattr(value, "ndim", 1) != 0


def path_like(who: str, name: str, value: Any) -> Path:
    """The path of a file or a folder."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise TypeError(f"{who}: {name} must be a path; got {value!r}")
    try:
        good = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        good = False
    if not good:
        raise ValueError(f"{who}: {name} must be a path that the system can have; got {value!r}")
    return Path(value)


def token_ids(who: str, name: str, values: Any) -> tuple[int, ...]:
    """Token ids, each >= 0."""
    if not several(values):
        raise ValueError(f"{who}: {name} must be token ids, integers >= 0; got {values!r}")
    return tuple(whole(who, name, value, 0) for value in values)


def check_image(who: str, image: Any) -> np.ndarray:
    """An array (H, W, C)."""
    if not isinstance(image, np.ndarray) or image.ndim != 3 or 0 in image.shape:
        got = getattr(image, "shape", None) or type(image).__name__
        raise ShapeError(f"{who}: an image must be an array (H, W, C); got {got}")
    return image


def check_floats(who: str, image: Any) -> np.ndarray:
    """An image of floats: what is from 0 to 255 would all be white."""
    array = check_image(who, image)
    if array.dtype.kind != "f":
        raise DTypeError(
            f"{who}: an image must have floats from 0 to 1; got {array.dtype}; divide by 255"
        )
    return array


def set_fields(made: Any, **values: Any) -> None:
    """Give fields of a frozen dataclass their checked values."""
    for name, value in values.items():
        object.__setattr__(made, name, value)
