# SPDX-License-Identifier: MIT
"""Arithmetic of whole numbers: `+ - * // %` of i32 tensors.

ggml computes floats. Stored numbers are computed at once by NumPy; what a graph computes, as f32,
which has all whole numbers up to 2^24.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend.dtypes import f32, i32
from ...checks import is_real
from ...errors import DTypeError, fitting, shown
from ...tensors.create import tensor
from ...tensors.operators import register
from ...tensors.row_limits import limit_rows, row_limit
from ...tensors.storage import count_read, read
from ...tensors.tensor import Tensor
from ...tensors.tracing import is_input
from .. import elementwise
from ..operands import as_tensor, broadcast, need_tensor, shape_of
from ..rows import stored_source
from ..shape import cast

__all__ = ["floor_divide", "remainder", "whole_arithmetic"]

_EXACT = 2**24  # f32 has all whole numbers up to here
_ENDS = -(2**31), 2**31 - 1

# Least and most, where they are known.
_Range = tuple[int, int]


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    return elementwise.floor(elementwise.div(a, b))


def _rest(a: Tensor, b: Tensor) -> Tensor:
    return elementwise.sub(a, elementwise.mul(b, _quotient(a, b)))


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
}
_RECORDED: dict[str, Callable[..., Tensor]] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "floor_divide": _quotient,
    "remainder": _rest,
}


@fitting
def floor_divide(a: Any, b: Any) -> Tensor:
    """a / b of whole numbers, rounded down.

    Args:
        a, b: i32 tensors or whole numbers, one of them a tensor; they broadcast.

    Raises:
        DTypeError: one of them has decimal numbers; use floor(a / b).
        ValueError: a known divisor is 0; or a result is beyond i32 or, where a graph computes it,
            may be beyond 2^24.

    Example:
        >>> floor_divide(tensor([7, -7]), 2).tolist()
        [3, -4]
    """
    return whole_arithmetic("floor_divide", a, b)


@fitting
def remainder(a: Any, b: Any) -> Tensor:
    """Return what remains of a / b of whole numbers, with the sign of b; see `floor_divide`.

    Example:
        >>> remainder(tensor([7, -7]), 4).tolist()
        [3, 1]
    """
    return whole_arithmetic("remainder", a, b)


def whole_arithmetic(who: str, a: Any, b: Any) -> Tensor:
    """Return a sum, difference, product or quotient of which one operand is an i32 tensor.

    With decimal numbers, and for `div`, it is f32, as PyTorch has it.

    Args:
        who: the function.
        a, b: tensors, arrays or numbers, one of them a tensor.

    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: decimal numbers, of `floor_divide` and `remainder`.
        ValueError: a known divisor is 0; or a result is beyond i32 or, where a graph computes it,
            may be beyond 2^24.
    """
    count_read()  # the limits of row numbers decide, besides the layouts
    like = a if isinstance(a, Tensor) else need_tensor(who, "a or b", b)
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, (Tensor, np.ndarray, list, tuple)) and not is_real(x):
            as_tensor(who, name, x, like)  # raises
    if not (_is_whole(a) and _is_whole(b)):
        if who not in ("floor_divide", "remainder"):
            return _decimal(who, a, b)
        cure = "pg.floor(a / b)" if who == "floor_divide" else "a - b * pg.floor(a / b)"
        raise DTypeError(
            f"{who}: a and b must be whole numbers (i32); got {shown(a)} and {shown(b)}: of"
            f" decimal ones compute {cure}"
        )
    if who == "div":
        return _decimal(who, a, b)
    if who in ("floor_divide", "remainder"):
        _check_divisor(who, b)
    x, y = _stored(a), _stored(b)
    if x is not None and y is not None:
        broadcast(who, a=x.shape, b=y.shape)
        for numbers in (x, y):
            _check_ends(who, int(numbers.min(initial=0)), int(numbers.max(initial=0)))
        found = _NUMPY[who](x.astype(np.int64), y.astype(np.int64))
        _check_ends(who, int(found.min()), int(found.max()))
        return tensor(found.astype(np.int32), device=like.device)
    return _recorded(who, a, b, like)


def _recorded(who: str, a: Any, b: Any, like: Tensor) -> Tensor:
    """Record the arithmetic in f32."""
    ranges = _range(a), _range(b)
    known = _range_of(who, *ranges)
    for each in (*ranges, known):
        if each is not None and not -_EXACT <= each[0] <= each[1] <= _EXACT:
            raise ValueError(
                f"{who}: a graph computes whole numbers as f32, exactly up to 2^24; got numbers up"
                f" to {max(map(abs, each)):,} from {shown(a)} and {shown(b)}: .detach() what is"
                " recorded, and stored numbers are computed exactly"
            )
    broadcast(who, a=shape_of(a), b=shape_of(b))
    x, y = (cast(as_tensor(who, name, v, like), "f32") for name, v in (("a", a), ("b", b)))
    result = cast(_RECORDED[who](x, y), "i32")
    if known is not None and known[0] >= 0:
        limit_rows(result.node, known[1] + 1)
    return result


def _decimal(who: str, a: Any, b: Any) -> Tensor:
    """Compute in floats: whole numbers become those of the other operand's dtype."""
    pair = [cast(x, "f32") if isinstance(x, Tensor) and x.dtype is i32 else x for x in (a, b)]
    dtypes = [x.dtype for x in pair if isinstance(x, Tensor)]
    half = next((d for d in dtypes if d is not f32), None)
    if half is not None:
        pair = [cast(x, half) if isinstance(x, Tensor) else x for x in pair]
    result: Tensor = getattr(elementwise, who)(*pair)
    return result


def _is_whole(x: Any) -> bool:
    """Return True for an i32 tensor, a whole number, and arrays and lists of them."""
    if isinstance(x, Tensor):
        return x.dtype is i32
    try:
        return np.asarray(x).dtype.kind in "iu"
    except ValueError:  # ragged lists
        return False


def _stored(x: Any) -> np.ndarray | None:
    """Return numbers that are there already; None for what a graph computes or overwrites."""
    if not isinstance(x, Tensor):
        return np.asarray(x)
    return read(x.node) if x.is_stored and not is_input(x.node) else None


def _range(x: Any) -> _Range | None:
    """Return the least and the most number of an operand; None where they are not known."""
    if isinstance(x, Tensor):
        node = stored_source(x.node)
        if node.buffer is None or is_input(node):
            limit = row_limit(node)
            return None if limit is None else (0, limit - 1)
        numbers = read(node)
    else:
        numbers = np.asarray(x)
    return int(numbers.min()), int(numbers.max())


def _range_of(who: str, a: _Range | None, b: _Range | None) -> _Range | None:
    """Return the range of a result; None where it is not known."""
    if who == "remainder" and b is not None and b[0] > 0:
        return 0, b[1] - 1
    if a is None or b is None:
        return None
    if who == "remainder":
        return min(b[0] + 1, 0), max(b[1] - 1, 0)
    ends = [int(_NUMPY[who](x, y)) for x in a for y in b if y or who != "floor_divide"]
    return min(ends), max(ends)


def _check_divisor(who: str, b: Any) -> None:
    """Raise for a known divisor of 0."""
    numbers = _stored(b)
    if numbers is not None and not numbers.all():
        raise ValueError(f"{who}: b must not be 0; got {shown(b)}")


def _check_ends(who: str, least: int, most: int) -> None:
    """Raise for whole numbers that i32 does not have."""
    if least < _ENDS[0] or most > _ENDS[1]:
        raise ValueError(
            f"{who}: a and b must stay within i32, from -2^31 to 2^31 - 1, and so must the result;"
            f" got {least if least < _ENDS[0] else most:,}: use x.astype('f32'), or x.numpy()"
        )


register("whole_arithmetic", whole_arithmetic)
