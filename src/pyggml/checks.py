# SPDX-License-Identifier: MIT
"""The checks of arguments: one function, one wording and one exception for each kind.

Each takes `who`, the function or class that was called, `name`, the argument's name, and `value`,
the argument, and returns the checked value. A value of a wrong kind raises TypeError, a wrong value
ValueError; the message names the caller, the argument, the rule and the value: `AdamW: lr must be a
finite number >= 0; got -1`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import index
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np

from .errors import ShapeError, shown

__all__ = [
    "F32_MAX",
    "array",
    "choice",
    "f32",
    "flag",
    "function",
    "having",
    "instance",
    "is_iterable",
    "is_real",
    "items",
    "mapping",
    "names",
    "number",
    "path",
    "text",
    "whole",
]

F32_MAX = float(np.finfo(np.float32).max)
_INT64_MAX = 2**63 - 1

_T = TypeVar("_T")


def is_real(value: Any) -> bool:
    """Return True for a real number of Python or NumPy; False for True and False.

    Example:
        >>> is_real(1.5), is_real(True), is_real("1")
        (True, False, False)
    """
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_iterable(value: Any) -> TypeGuard[Iterable[Any]]:
    """Return True for what can be iterated over, which an array without axes cannot.

    Example:
        >>> is_iterable([1]), is_iterable(np.array(1)), is_iterable(1)
        (True, False, False)
    """
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def number(
    who: str,
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    finite: bool = True,
) -> float:
    """Return a real number within bounds as a float.

    Args:
        least: smallest value allowed.
        most: largest value allowed.
        above: every value allowed is greater.
        below: every value allowed is smaller.
        finite: raise on NaN and infinity; otherwise only on NaN out of bounds.

    Raises:
        TypeError: the value is not a real number.
        ValueError: the value is out of bounds or not finite.

    Example:
        >>> number("AdamW", "lr", 0.1, 0.0)
        0.1
    """
    if not is_real(value):
        raise TypeError(f"{who}: {name} must be a number; got {shown(value)}")
    try:
        result = float(value)
    except OverflowError:  # an int beyond every float is no infinity
        result, finite = math.copysign(math.inf, value > 0 or -1), True
    inside = (
        (least is None or result >= least)
        and (most is None or result <= most)
        and (above is None or result > above)
        and (below is None or result < below)
    )
    if not inside or (finite and not math.isfinite(result)):
        kind = "a finite number" if finite else "a number"
        raise ValueError(
            f"{who}: {name} must be {kind}{_bounds(least, most, above, below)}; got {shown(value)}"
        )
    return result


def f32(
    who: str,
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Return a finite number within bounds that f32 holds; see `number` for the bounds.

    Raises:
        TypeError: the value is not a real number.
        ValueError: the value is out of bounds, not finite or beyond f32.

    Example:
        >>> f32("AdamW", "lr", 0.1, 0.0)
        0.1
    """
    result = number(who, name, value, least, most, above=above, below=below)
    if abs(result) > F32_MAX:
        raise ValueError(f"{who}: {name} must be finite in f32; got {shown(value)}")
    return result


def whole(
    who: str, name: str, value: Any, least: int | None = None, most: int | None = None
) -> int:
    """Return a whole number within bounds as an int.

    Args:
        least: smallest value allowed; by default the smallest int64.
        most: largest value allowed; by default the largest int64.

    Raises:
        TypeError: the value is not a whole number.
        ValueError: the value is out of bounds.

    Example:
        >>> whole("Loader", "batch_size", 8, 1)
        8
    """
    try:
        result = None if isinstance(value, (bool, np.bool_)) else index(value)
    except TypeError:
        result = None
    if result is None:
        raise TypeError(f"{who}: {name} must be a whole number; got {shown(value)}")
    low = -_INT64_MAX - 1 if least is None else least
    high = _INT64_MAX if most is None else most
    if not low <= result <= high:
        # A bound that nobody set is told only to a value beyond it.
        bounds = _bounds(
            low if result < low else least, high if result > high else most, None, None
        )
        raise ValueError(f"{who}: {name} must be a whole number{bounds}; got {shown(value)}")
    return result


def _bounds(
    least: float | None, most: float | None, above: float | None, below: float | None
) -> str:
    """Write bounds such as ` >= 0 and < 1`."""
    given = ((">", above), (">=", least), ("<", below), ("<=", most))
    parts = [
        f"{sign} {bound if isinstance(bound, int) else f'{bound:g}'}"
        for sign, bound in given
        if bound is not None
    ]
    return " " + " and ".join(parts) if parts else ""


def flag(who: str, name: str, value: Any) -> bool:
    """Return True or False; a value that is merely true, such as "no", raises.

    Raises:
        TypeError: the value is not a bool.

    Example:
        >>> flag("Loader", "shuffle", False)
        False
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{who}: {name} must be True or False; got {shown(value)}")
    return bool(value)


def choice(who: str, name: str, value: Any, choices: Iterable[str]) -> str:
    """Return a word, which must be one of `choices`.

    Raises:
        TypeError: the value is not a str.
        ValueError: the word is not one of them.

    Example:
        >>> choice("kl_div", "reduction", "sum", ("mean", "sum"))
        'sum'
    """
    known = list(choices)
    if not isinstance(value, str):
        raise TypeError(f"{who}: {name} must be one of {', '.join(known)}; got {shown(value)}")
    if value not in known:
        raise ValueError(f"{who}: {name} must be one of {', '.join(known)}; got {shown(value)}")
    return value


def text(who: str, name: str, value: Any) -> str:
    """Return a str.

    Raises:
        TypeError: the value is not a str.

    Example:
        >>> text("Tokenizer.encode", "text", "ab")
        'ab'
    """
    if not isinstance(value, str):
        raise TypeError(f"{who}: {name} must be a str; got {shown(value)}")
    return value


def names(who: str, name: str, value: Any) -> tuple[str, ...]:
    """Return one or several strings as a tuple.

    Raises:
        TypeError: the value is neither a str nor a list or tuple of them.

    Example:
        >>> names("evaluate", "metrics", "accuracy")
        ('accuracy',)
    """
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, (list, tuple)) or not all(isinstance(s, str) for s in several):
        raise TypeError(f"{who}: {name} must be a list of str; got {shown(value)}")
    return tuple(several)


def path(who: str, name: str, value: Any) -> Path:
    """Return the path that a str or a path-like object names.

    Raises:
        TypeError: the value is neither a str nor path-like.
        ValueError: the path is empty, holds a zero byte or cannot be encoded.

    Example:
        >>> path("load", "path", "run/model.gguf").name
        'model.gguf'
    """
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{who}: {name} must be a path; got {shown(value)}")
    written = os.fspath(value)
    try:
        good = bool(written) and b"\0" not in os.fsencode(written)
    except UnicodeEncodeError:
        good = False
    if not good:
        raise ValueError(f"{who}: {name} must name a file or a folder; got {shown(value)}")
    return Path(os.fsdecode(written))


def function(who: str, name: str, value: Any, takes: str = "") -> Callable[..., Any]:
    """Return a function or another object that can be called.

    Args:
        takes: the function's arguments and result in words, for the message.

    Raises:
        TypeError: the value cannot be called.

    Example:
        >>> function("Trainer", "schedule", abs, "step -> learning rate") is abs
        True
    """
    if not callable(value):
        more = f" ({takes})" if takes else ""
        raise TypeError(f"{who}: {name} must be a function{more}; got {shown(value)}")
    return value  # type: ignore[no-any-return]


def instance(who: str, name: str, value: Any, kind: type[_T], cure: str = "") -> _T:
    """Return an object of a class.

    Args:
        kind: the class.
        cure: what to do instead, for the message.

    Raises:
        TypeError: the value is of another class.

    Example:
        >>> instance("Graph", "name", "a", str)
        'a'
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        given = value if isinstance(value, type) else type(value)
        of = f"{given.__module__.partition('.')[0]}." if given.__name__ == kind.__name__ else ""
        got = f"the class {given.__name__}" if given is value else of + given.__name__
        raise TypeError(
            f"{who}: {name} must be {article} {kind.__name__}; got {got}"
            + (f"; {cure}" if cure else "")
        )
    return value


def having(who: str, name: str, value: Any, kind: str, *attributes: str) -> Any:
    """Return an object that has some attributes; the message says that it must be `kind`.

    Raises:
        TypeError: one is missing.

    Example:
        >>> having("split_images", "source", 2 + 1j, "a complex number", "real", "imag")
        (2+1j)
    """
    if isinstance(value, type) or not all(hasattr(value, each) for each in attributes):
        raise TypeError(f"{who}: {name} must be {kind}; got {shown(value)}")
    return value


def mapping(who: str, name: str, value: Any) -> Mapping[str, Any]:
    """Return a dict or another mapping.

    Raises:
        TypeError: the value is not a mapping.

    Example:
        >>> mapping("load_state_dict", "state", {"a": 1})["a"]
        1
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{who}: {name} must be a dict; got {shown(value)}")
    return value


def items(who: str, name: str, value: Any, count: int | None = None) -> tuple[Any, ...]:
    """Return the items of a list, tuple, iterator or array as a tuple.

    Args:
        count: how many items there must be; None allows any number.

    Raises:
        TypeError: the value is a str, a mapping or not iterable.
        ValueError: there are more or fewer items.

    Example:
        >>> items("AdamW", "betas", [0.9, 0.999], 2)
        (0.9, 0.999)
    """
    if isinstance(value, (str, bytes, Mapping)) or not is_iterable(value):
        rule = "a list" if count is None else f"a list or tuple of {count} items"
        raise TypeError(f"{who}: {name} must be {rule}; got {shown(value)}")
    found = tuple(value)
    if count is not None and len(found) != count:
        raise ValueError(f"{who}: {name} must have {count} items; got {shown(value)}")
    return found


def array(
    who: str,
    name: str,
    value: Any,
    ndim: int | Collection[int] | None = None,
    kinds: str | None = "iuf",
) -> np.ndarray:
    """Return an array of real numbers.

    Args:
        ndim: the number of axes, or several allowed; None allows any.
        kinds: NumPy's kinds of dtype allowed: i and u integers, f floats, b bools; None
            allows any.

    Raises:
        TypeError: the value holds something else.
        ShapeError: the lists are ragged, or there are more or fewer axes.

    Example:
        >>> array("evaluate", "ids", [1, 2, 3], 1, "iu").shape
        (3,)
    """
    try:
        found: np.ndarray = np.asanyarray(value)
    except ValueError as error:
        raise ShapeError(f"{who}: {name} must be an array; got ragged lists ({error})") from None
    if kinds is not None and found.dtype.kind not in kinds:
        words = {"i": "integers", "f": "floats", "b": "bools"}
        wanted = " or ".join(words[kind] for kind in "ifb" if kind in kinds)
        raise TypeError(f"{who}: {name} must hold {wanted}; got {found.dtype} ({shown(value)})")
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and found.ndim not in allowed:
        rule = f"have {' or '.join(map(str, allowed))} axes" if any(allowed) else "be one number"
        raise ShapeError(f"{who}: {name} must {rule}; got shape {found.shape}")
    return found
