# SPDX-License-Identifier: MIT
"""Comparisons, masks, and choices between tensors by a mask.

A mask is an f32 tensor of ones and zeros: ggml has no type for truth values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...checks import is_real, number, whole
from ...errors import DTypeError, ShapeError, shown
from ...tensors.create import tensor
from ...tensors.record import without_gradient
from ...tensors.tensor import Tensor
from ..elementwise import abs, add, log, mul, neg, scale, step, sub
from ..operands import (
    as_tensor,
    broadcast,
    need_dtype,
    need_float,
    need_ndim,
    need_tensor,
    shape_of,
)
from ..shape import cast
from .naming import composed

__all__ = [
    "eq",
    "ge",
    "gt",
    "le",
    "logical_and",
    "logical_not",
    "logical_or",
    "lt",
    "masked_fill",
    "maximum",
    "minimum",
    "ne",
    "tril",
    "triu",
    "where",
]


def _numbers(who: str, name: str, x: Any) -> Any:
    """Return an operand of a comparison; whole numbers as f32, which has those up to 2^24."""
    if is_real(x) or isinstance(x, (np.ndarray, list, tuple)):
        return x
    need_dtype(who, name, need_tensor(who, name, x), "f32", "i32", "f16", "bf16")
    return cast(x, "f32")


def _difference(who: str, a: Any, b: Any) -> Tensor:
    found = sub(_numbers(who, "a", a), _numbers(who, "b", b))
    return without_gradient(found) if found.requires_grad else found


@composed
def gt(a: Any, b: Any) -> Tensor:
    """1 where a > b, else 0, as f32; NaN where either is, or both are the same infinity.

    No gradient flows through a comparison.

    Args:
        a, b: tensors, arrays or numbers, one of them a tensor; they broadcast.

    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: a dtype is not f32, f16, bf16 or i32.

    Source: ggml_sub, ggml_step.

    Example:
        >>> gt(tensor([1.0, 2.0, 3.0]), 2).tolist()
        [0.0, 0.0, 1.0]
    """
    return step(_difference("gt", a, b))


@composed
def lt(a: Any, b: Any) -> Tensor:
    """1 where a < b, else 0; see `gt`."""
    return step(neg(_difference("lt", a, b)))


@composed
def ge(a: Any, b: Any) -> Tensor:
    """1 where a >= b, else 0; see `gt`."""
    return logical_not(step(neg(_difference("ge", a, b))))


@composed
def le(a: Any, b: Any) -> Tensor:
    """1 where a <= b, else 0; see `gt`."""
    return logical_not(step(_difference("le", a, b)))


@composed
def ne(a: Any, b: Any) -> Tensor:
    """1 where a and b differ, else 0; see `gt`."""
    return step(abs(_difference("ne", a, b)))


@composed
def eq(a: Any, b: Any) -> Tensor:
    """1 where a and b are equal, else 0; see `gt`."""
    return logical_not(step(abs(_difference("eq", a, b))))


@composed
def logical_not(mask: Tensor) -> Tensor:
    """1 where a mask is 0, and 0 where it is 1.

    Raises:
        DTypeError: the mask is not f32.

    Example:
        >>> logical_not(tensor([1.0, 0.0])).tolist()
        [0.0, 1.0]
    """
    return scale(need_float("logical_not", "mask", mask), -1.0, 1.0)


@composed
def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """1 where both masks are 1, else 0. Source: ggml_mul."""
    return mul(need_float("logical_and", "a", a), need_float("logical_and", "b", b))


@composed
def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """1 where one of two masks is 1, else 0. Source: ggml_add, ggml_step."""
    return step(add(need_float("logical_or", "a", a), need_float("logical_or", "b", b)))


def _mask(who: str, name: str, mask: Any, like: Any) -> Tensor:
    """Return a mask as a tensor: booleans of NumPy become ones and zeros."""
    if isinstance(mask, Tensor):
        return need_float(who, name, mask)
    try:
        array = np.asarray(mask)
    except ValueError:  # ragged lists
        array = np.empty(0)
    if array.dtype != bool:
        raise DTypeError(
            f"{who}: {name} must be a tensor of ones and zeros, such as x > 0, or an array of"
            f" booleans; got {shown(mask)}"
        )
    return tensor(array.astype(np.float32), "f32", like.device if like is not None else None)


def _chosen(who: str, name: str, value: Any, mask: Tensor, other: Tensor) -> Tensor:
    """Return value · mask, where a number may be infinite."""
    if not is_real(value):
        return mul(mask, value)
    value = number(who, name, value, finite=False)
    if math.isnan(value):
        raise ValueError(f"{who}: {name} must not be NaN, which would be everywhere")
    if math.isinf(value):  # ± log(1 - mask) is infinite where the mask is 1, and 0 elsewhere
        infinite = log(other)
        return infinite if value < 0 else neg(infinite)
    return scale(mask, float(value))


@composed
def where(mask: Any, a: Any, b: Any) -> Tensor:
    """Return a where a mask is 1, and b where it is 0: mask · a + (1 - mask) · b.

    Elements that are not taken are multiplied by zero, so that infinities and NaN among those of
    a tensor give NaN; a or b may be the numbers inf and -inf.

    Args:
        mask: f32 ones and zeros, such as `x > 0`, or NumPy booleans.
        a, b: tensors or numbers; all three broadcast.

    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the mask is neither f32 nor booleans.
        ValueError: a or b is the number NaN.

    Source: torch.where.

    Example:
        >>> x = tensor([-1.0, 2.0])
        >>> where(x > 0, x, 0.5).tolist()
        [0.5, 2.0]
    """
    like = next((x for x in (mask, a, b) if isinstance(x, Tensor)), None)
    taken = _mask("where", "mask", mask, like)
    a = a if is_real(a) else as_tensor("where", "a", a, taken)
    b = b if is_real(b) else as_tensor("where", "b", b, taken)
    broadcast("where", mask=taken.shape, a=shape_of(a), b=shape_of(b))
    left = logical_not(taken)
    return add(_chosen("where", "a", a, taken, left), _chosen("where", "b", b, left, taken))


@composed
def masked_fill(x: Tensor, mask: Any, value: float) -> Tensor:
    """Return x with a number where a mask is 1; see `where`.

    Args:
        x: f32.
        mask: f32 ones and zeros, or NumPy booleans, which broadcast to x.
        value: perhaps -inf.

    Raises:
        ShapeError: the mask does not broadcast to x.

    Source: torch.Tensor.masked_fill.

    Example:
        >>> masked_fill(tensor([1.0, 2.0]), tensor([0.0, 1.0]), float("-inf")).tolist()
        [1.0, -inf]
    """
    need_float("masked_fill", "x", x)
    taken = _mask("masked_fill", "mask", mask, x)
    if broadcast("masked_fill", x=x.shape, mask=taken.shape) != x.shape:
        raise ShapeError(
            f"masked_fill: mask must broadcast to x.shape={x.shape}; got {taken.shape}"
        )
    value = number("masked_fill", "value", value, finite=False)
    filler = _chosen("masked_fill", "value", value, taken, logical_not(taken))
    return add(filler, mul(x, logical_not(taken)))


@composed
def maximum(a: Any, b: Any) -> Tensor:
    """Return the larger of a and b, element by element; of equal ones b, which has the gradient.

    Args:
        a, b: tensors or numbers; finite, see `where`.

    Source: torch.maximum.

    Example:
        >>> maximum(tensor([1.0, 5.0]), 2.0).tolist()
        [2.0, 5.0]
    """
    return where(gt(a, b), a, b)


@composed
def minimum(a: Any, b: Any) -> Tensor:
    """Return the smaller of a and b, element by element; see `maximum`."""
    return where(lt(a, b), a, b)


def _triangle(who: str, x: Tensor, diagonal: int, upper: bool) -> Tensor:
    need_float(who, "x", x)
    need_ndim(who, "x", x, 2, 3, 4)
    k = whole(who, "diagonal", diagonal)
    ones = np.ones(x.shape[-2:], np.float32)
    kept = np.triu(ones, k) if upper else np.tril(ones, k)
    return mul(x, tensor(kept, "f32", x.device))


@composed
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the lower triangles of matrices; zeros above a diagonal.

    Args:
        x: f32 matrices, finite.
        diagonal: the last that is kept; 0 is the main one, 1 that above it.

    Shape:
        x (..., M, N) -> (..., M, N)

    Raises:
        ShapeError: x has fewer than two axes.

    Source: torch.tril.

    Example:
        >>> tril(ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle("tril", x, diagonal, upper=False)


@composed
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the upper triangles of matrices; see `tril`."""
    return _triangle("triu", x, diagonal, upper=True)
