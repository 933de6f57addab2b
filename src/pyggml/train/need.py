# SPDX-License-Identifier: MIT
"""What the functions of this package are given, checked at their door."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["need_function", "need_number", "need_path", "need_texts", "need_whole"]


def need_number(who: str, name: str, value: Any, least: float = 0.0, most: float = math.inf) -> Any:
    """A finite number within bounds, as it was given.

    Args:
        who: the function.
        name: of its argument.
        value: what it was given.
        least: smallest that it may be.
        most: largest that it may be.

    Raises:
        TypeError: it is no number.
        ValueError: it is out of bounds, or not finite.

    Example:
        >>> need_number("step", "lr", 0.1)
        0.1
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise TypeError(f"{who}: {name} must be a number; got {value!r:.60}")
    if not (least <= value <= most and abs(value) != math.inf):
        above = "" if most == math.inf else f" and <= {most:g}"
        raise ValueError(f"{who}: {name} must be finite and >= {least:g}{above}; got {value!r:.60}")
    return value


def need_whole(who: str, name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least so much.

    Args:
        who: the function.
        name: of its argument.
        value: what it was given.
        least: smallest that it may be.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is below.

    Example:
        >>> need_whole("evaluate", "at_step", 3)
        3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{who}: {name} must be a whole number; got {value!r:.60}")
    if value < least:
        raise ValueError(f"{who}: {name} must be at least {least}; got {value!r:.60}")
    return int(value)


def need_path(who: str, name: str, value: Any) -> Path:
    """The path that a text or a path-like object says.

    Args:
        who: the function.
        name: of its argument.
        value: what it was given.

    Raises:
        TypeError: it is neither.
        ValueError: it is empty, or holds a zero byte.

    Example:
        >>> need_path("resume", "path", "run/step-000100").name
        'step-000100'
    """
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{who}: {name} must be a path or text; got {value!r:.60}")
    text = os.fsdecode(value)
    if not text or "\0" in text:
        raise ValueError(f"{who}: {name} must name a file or folder; got {text!r:.60}")
    return Path(text)


def need_function(who: str, name: str, value: Any, takes: str) -> Any:
    """What can be called, as it was given.

    Args:
        who: the function.
        name: of its argument.
        value: what it was given.
        takes: what it is called with and for, in words.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(value):
        raise TypeError(f"{who}: {name} must be a function, {takes}; got {value!r:.60}")
    return value


def need_texts(who: str, name: str, value: Any) -> tuple[str, ...]:
    """Several texts; one alone is one of them.

    Args:
        who: the function.
        name: of its argument.
        value: what it was given.

    Raises:
        TypeError: there is something else in it.

    Example:
        >>> need_texts("evaluate", "scores", "accuracy")
        ('accuracy',)
    """
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{who}: {name} must be texts; got {value!r:.60}")
    return tuple(texts)
