# SPDX-License-Identifier: MIT
"""Comparisons and logic.

A mask is an f32 tensor of ones and zeros: ggml has no type for truth values. Of other tensors the
truth is that a number is not 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...checks import is_real
from ...errors import composed, shown
from ...tensors.on_demand import on_demand
from ...tensors.record import without_gradient
from ...tensors.row_limits import row_limit
from ...tensors.storage import count_read, read
from ...tensors.tensor import Tensor
from ...tensors.tracing import is_input
from ...tensors.truth import is_mask, note_mask
from ..elementwise import abs, clamp, either, mul, neg, scale, step, sub
from ..operands import as_tensor, has_truth, need_dtype, need_float, need_tensor
from ..rows import stored_source
from ..shape import cast

__all__ = [
    "difference",
    "eq",
    "ge",
    "gt",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "logical_and",
    "logical_not",
    "logical_or",
    "lt",
    "ne",
    "truth_of",
]

_FLT_MAX = (2.0 - 2.0**-23) * 2.0**127
_EXACT = 2**24  # f32 has all whole numbers up to here


def _truth(mask: Tensor) -> Tensor:
    note_mask(mask.node)
    return mask


def _known(mask: Tensor) -> Tensor:
    """Return a mask with 0 in the place of NaN, which is cast to 0 or to an end of i32."""
    found = clamp(cast(cast(mask, "i32"), "f32"), 0.0, 2.0)
    return mul(found, scale(found, -1.0, 2.0))


def _not(mask: Tensor) -> Tensor:
    return scale(mask, -1.0, 1.0)


def _array(x: Any) -> np.ndarray:
    """Return an array of an operand; an empty one of what `as_tensor` will refuse."""
    try:
        return np.asarray(x)
    except ValueError:  # ragged lists
        return np.empty(0)


def _is_whole(x: Any) -> bool:
    """Return True for an i32 tensor, a whole number, and arrays and lists of them."""
    return x.dtype.name == "i32" if isinstance(x, Tensor) else _array(x).dtype.kind in "iu"


def _wholes(x: Any) -> np.ndarray | None:
    """Return whole numbers; None for those that a graph computes, which f32 had before."""
    if not isinstance(x, Tensor):
        return _array(x)
    node = stored_source(x.node)
    return None if node.buffer is None or is_input(node) else read(node)


def _beyond(x: Any) -> bool:
    """Return True if whole numbers may be 2^24 or more."""
    found = _wholes(x)
    if found is None:
        return (row_limit(stored_source(x.node)) or _EXACT) >= _EXACT
    return bool(found.size and (found.max() >= _EXACT or found.min() <= -_EXACT))


def _rounded(x: Any) -> bool:
    found = _wholes(x)
    return found is not None and bool((found.astype(np.float32).astype(object) != found).any())


def _check_exact(who: str, a: Any, b: Any) -> None:
    """Raise where whole numbers of both operands would be rounded to f32 and then be equal."""
    if not (_is_whole(a) and _is_whole(b)):
        return
    count_read()  # the limits of row numbers decide, besides the layouts
    computed_first = sorted((a, b), key=lambda x: isinstance(x, Tensor) and x.is_stored)
    if all(map(_beyond, computed_first)) and (_rounded(a) or _rounded(b)):
        raise ValueError(
            f"{who}: whole numbers of a and b must not both be beyond 2^24, as they are compared"
            f" as f32; got {shown(a)} and {shown(b)}: compare a.numpy() and b.numpy()"
        )


def _number_or_float(who: str, name: str, x: Any) -> Any:
    """Return an operand of a comparison; whole numbers as f32."""
    if isinstance(x, (bool, np.bool_)):
        return int(x)
    if is_real(x) or isinstance(x, (np.ndarray, list, tuple)):
        return x
    need_dtype(who, name, need_tensor(who, name, x), "f32", "i32", "f16", "bf16")
    return cast(x, "f32")


def _finite(x: Any) -> bool:
    """Return True for what is known to be neither infinite nor NaN."""
    if isinstance(x, Tensor):
        return x.dtype.name == "i32" or is_mask(x.node)
    array = _array(x)
    return array.dtype.kind != "f" or bool((np.abs(array) <= _FLT_MAX).all())


def _compared(who: str, a: Any, b: Any, same: bool) -> tuple[Tensor, bool]:
    """Return a - b or what has its sign, and whether it may be NaN.

    It is NaN where a or b is; where both are the same infinity as well, if not `same`.
    """
    _check_exact(who, a, b)
    finite = _finite(a), _finite(b)
    a, b = _number_or_float(who, "a", a), _number_or_float(who, "b", b)
    if same and not any(finite):  # half of a finite number is below FLT_MAX
        like = a if isinstance(a, Tensor) else need_tensor(who, "a or b", b)
        a, b = (
            clamp(scale(as_tensor(who, name, x, like), 0.5), -_FLT_MAX, _FLT_MAX)
            for name, x in (("a", a), ("b", b))
        )
    return without_gradient(sub(a, b)), not all(finite)


def difference(who: str, a: Any, b: Any) -> Tensor:
    """Return what has the sign of a - b; 0 also of equal infinities, NaN where a or b is."""
    return _compared(who, a, b, True)[0]


def _where(mask: Tensor, unknown: bool) -> Tensor:
    return _truth(_known(mask) if unknown else mask)


@on_demand
@composed
def gt(a: Any, b: Any) -> Tensor:
    """1 where a > b, else 0, as f32; 0 where either is NaN.

    No gradient flows through a comparison.

    Args:
        a, b: tensors, arrays or numbers, one of them a tensor; they broadcast.

    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: a dtype is not f32, f16, bf16 or i32.
        ValueError: both have whole numbers beyond 2^24, which f32 rounds. Inputs of a function that
            is recorded are not checked.

    Source: ggml_sub, ggml_step.

    Example:
        >>> gt(tensor([1.0, 2.0, 3.0]), 2).tolist()
        [0.0, 0.0, 1.0]
    """
    found, unknown = _compared("gt", a, b, False)
    return _where(step(found), unknown)


@on_demand
@composed
def lt(a: Any, b: Any) -> Tensor:
    """1 where a < b, else 0; see `gt`."""
    found, unknown = _compared("lt", a, b, False)
    return _where(step(neg(found)), unknown)


@on_demand
@composed
def ge(a: Any, b: Any) -> Tensor:
    """1 where a >= b, else 0; see `gt`."""
    found, unknown = _compared("ge", a, b, True)
    return _where(_not(step(neg(found))), unknown)


@on_demand
@composed
def le(a: Any, b: Any) -> Tensor:
    """1 where a <= b, else 0; see `gt`."""
    found, unknown = _compared("le", a, b, True)
    return _where(_not(step(found)), unknown)


@on_demand
@composed
def ne(a: Any, b: Any) -> Tensor:
    """1 where a and b differ, also where either is NaN, else 0; see `gt`."""
    found, unknown = _compared("ne", a, b, True)
    differ = step(abs(found))
    return _truth(_not(_known(_not(differ))) if unknown else differ)


@on_demand
@composed
def eq(a: Any, b: Any) -> Tensor:
    """1 where a and b are equal, else 0; see `gt`."""
    found, unknown = _compared("eq", a, b, True)
    return _where(_not(step(abs(found))), unknown)


@on_demand
@composed
def isnan(x: Tensor) -> Tensor:
    """1 where x is NaN, else 0. Source: torch.isnan."""
    need_float("isnan", "x", x)
    known = scale(clamp(without_gradient(x), -1.0, 1.0), 0.0, 1.0)  # 1 or NaN
    return _truth(_not(_known(known)))


@on_demand
@composed
def isinf(x: Tensor) -> Tensor:
    """1 where x is inf or -inf, else 0. Source: torch.isinf."""
    return eq(abs(need_float("isinf", "x", x)), math.inf)


@on_demand
@composed
def isfinite(x: Tensor) -> Tensor:
    """1 where x is neither infinite nor NaN, else 0. Source: torch.isfinite."""
    return lt(abs(need_float("isfinite", "x", x)), math.inf)


def truth_of(who: str, name: str, x: Tensor) -> Tensor:
    """Return a mask as it is, and of other numbers 1 where they are not 0, also where NaN."""
    need_float(who, name, x)
    return x if is_mask(x.node) else ne(x, 0.0)


@on_demand
@composed
def logical_not(mask: Tensor) -> Tensor:
    """1 where a mask, or another tensor, is 0, and 0 elsewhere.

    Raises:
        DTypeError: the mask is not f32.

    Example:
        >>> logical_not(tensor([1.0, 0.0, -0.5])).tolist()
        [0.0, 1.0, 0.0]
    """
    need_float("logical_not", "mask", mask)
    return _truth(_not(mask)) if is_mask(mask.node) else eq(mask, 0.0)


@on_demand
@composed
def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """1 where neither of two tensors is 0. Source: ggml_mul."""
    return mul(*_truths("logical_and", a, b))


@on_demand
@composed
def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """1 where one of two tensors is not 0. Source: ggml_add, ggml_step."""
    return either("logical_or", *_truths("logical_or", a, b))


def _truths(who: str, a: Any, b: Any) -> list[Tensor]:
    """Return the truth of two operands, one of which may be True, False, or an array of them."""
    like = a if isinstance(a, Tensor) else b
    pairs = (("a", a), ("b", b))
    return [truth_of(who, n, as_tensor(who, n, x, like) if has_truth(x) else x) for n, x in pairs]
