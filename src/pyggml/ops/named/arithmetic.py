# SPDX-License-Identifier: MIT
"""Arithmetic and comparisons under PyTorch's names, made of ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...checks import flag, number
from ...errors import composed
from ...tensors.on_demand import on_demand
from ...tensors.operators import register
from ...tensors.tensor import Tensor
from ..composed.choose import where
from ..composed.compare import eq, isnan, le, logical_and, logical_or, ne
from ..composed.pointwise import exp2
from ..elementwise import abs, add, clamp, div, exp, expm1, log, mul, neg, scale, sub
from ..operands import as_tensor, need_float, need_tensor
from ..reductions import sum
from ..shape import cast

__all__ = [
    "addcdiv",
    "addcmul",
    "allclose",
    "cosh",
    "count_nonzero",
    "equal",
    "isclose",
    "log1p",
    "logical_xor",
    "nan_to_num",
    "nanmean",
    "nansum",
    "sinh",
]

_F32_MAX = float(np.finfo(np.float32).max)
_F32_TINY = float(np.finfo(np.float32).tiny)
_NO_FRACTIONS = 2.0**24  # 1 + x is x from here on, in f32


@on_demand
@composed
def log1p(x: Tensor) -> Tensor:
    """log(1 + x), exact near 0.

    What the sum 1 + x lost is divided by its derivative and added.

    Example:
        >>> round(pg.log1p(pg.tensor([1e-6])).item() * 1e6, 3)
        1.0
    """
    near = clamp(need_float("log1p", "x", x), -math.inf, _NO_FRACTIONS)
    sum_ = add(near, 1.0)
    lost = sub(sub(sum_, 1.0), near)
    return sub(log(add(x, 1.0)), div(lost, clamp(sum_, _F32_TINY, math.inf)))


@on_demand
@composed
def sinh(x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2, exact near 0.

    Example:
        >>> pg.sinh(pg.tensor([0.0])).item()
        0.0
    """
    return scale(sub(expm1(need_float("sinh", "x", x)), expm1(neg(x))), 0.5)


@on_demand
@composed
def cosh(x: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2.

    Example:
        >>> pg.cosh(pg.tensor([0.0])).item()
        1.0
    """
    return scale(add(exp(need_float("cosh", "x", x)), exp(neg(x))), 0.5)


@on_demand
def power_of(base: float, x: Tensor) -> Tensor:
    """Return a number above 0 to the power of x: `2 ** x`.

    Example:
        >>> (2 ** pg.tensor([3.0])).item()
        8.0
    """
    return exp2(scale(need_float("pow", "x", x), math.log2(number("pow", "base", base, above=0))))


@on_demand
@composed
def addcmul(x: Tensor, a: Any, b: Any, *, value: float = 1.0) -> Tensor:
    """x + value · a · b.

    Example:
        >>> pg.addcmul(pg.ones(1), pg.ones(1), pg.ones(1), value=0.5).item()
        1.5
    """
    return add(x, scale(mul(a, b), number("addcmul", "value", value)))


@on_demand
@composed
def addcdiv(x: Tensor, a: Any, b: Any, *, value: float = 1.0) -> Tensor:
    """x + value · a / b.

    Example:
        >>> pg.addcdiv(pg.ones(1), pg.ones(1), pg.full((1,), 2.0)).item()
        1.5
    """
    return add(x, scale(div(a, b), number("addcdiv", "value", value)))


@on_demand
@composed
def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Return x with numbers in place of NaN and infinities.

    Args:
        x: f32.
        nan: in place of NaN.
        posinf: in place of inf; None is the largest number of f32.
        neginf: in place of -inf; None is the least number of f32.

    Source: torch.nan_to_num.

    Example:
        >>> pg.nan_to_num(pg.tensor([pg.nan, 2.0]), nan=1.0).tolist()
        [1.0, 2.0]
    """
    need_float("nan_to_num", "x", x)
    most = _F32_MAX if posinf is None else number("nan_to_num", "posinf", posinf)
    least = -_F32_MAX if neginf is None else number("nan_to_num", "neginf", neginf)
    y = where(isnan(x), number("nan_to_num", "nan", nan), x)
    return where(eq(x, math.inf), most, where(eq(x, -math.inf), least, y))


@composed
def isclose(
    a: Tensor, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """1 where a and b differ by at most atol + rtol · |b|, else 0.

    Args:
        a: f32.
        b: a tensor or a number.
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: two NaN are equal.

    Source: torch.isclose.

    Example:
        >>> pg.isclose(pg.tensor([1.0, 1.0]), pg.tensor([1.0, 1.1])).tolist()
        [1.0, 0.0]
    """
    relative, absolute = _tolerances("isclose", rtol, atol)
    other = as_tensor("isclose", "b", b, need_float("isclose", "a", a))
    near = le(abs(sub(a, other)), add(scale(abs(other), relative), absolute))
    near = logical_or(near, eq(a, other))
    if not flag("isclose", "equal_nan", equal_nan):
        return near
    return logical_or(near, logical_and(isnan(a), isnan(other)))


@composed
def allclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Return True if all elements are close; the numbers are computed now. See `isclose`.

    Example:
        >>> pg.allclose(pg.ones(2), pg.ones(2))
        True
    """
    x, y = need_tensor("allclose", "a", a).numpy(), need_tensor("allclose", "b", b).numpy()
    limits = _tolerances("allclose", rtol, atol)
    return bool(np.allclose(x, y, *limits, flag("allclose", "equal_nan", equal_nan)))


def _tolerances(who: str, rtol: Any, atol: Any) -> tuple[float, float]:
    """Return the relative and the absolute tolerance."""
    return number(who, "rtol", rtol, 0.0), number(who, "atol", atol, 0.0)


@composed
def equal(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors have one shape and the same numbers, which are computed now.

    Example:
        >>> pg.equal(pg.ones(2), pg.ones(2)), pg.equal(pg.ones(2), pg.ones(1))
        (True, False)
    """
    return np.array_equal(
        need_tensor("equal", "a", a).numpy(), need_tensor("equal", "b", b).numpy()
    )


@composed
def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    """1 where one of a and b is 0 and the other is not, else 0.

    Example:
        >>> pg.logical_xor(pg.tensor([1.0, 2.0]), pg.tensor([0.0, 1.0])).tolist()
        [1.0, 0.0]
    """
    return ne(ne(a, 0.0), ne(b, 0.0))


@composed
def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    """Return how many elements are not 0, over axes or of all, as i32.

    Example:
        >>> pg.count_nonzero(pg.tensor([0.0, 2.0, 3.0])).item()
        2
    """
    return cast(sum(ne(x, 0.0), dim), "i32")


@composed
def nansum(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the sum of what is not NaN, over axes or of all.

    Example:
        >>> pg.nansum(pg.tensor([1.0, pg.nan])).item()
        1.0
    """
    return sum(where(isnan(x), 0.0, x), dim, keepdim)


@composed
def nanmean(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the mean of what is not NaN, over axes or of all.

    Example:
        >>> pg.nanmean(pg.tensor([1.0, 3.0, pg.nan])).item()
        2.0
    """
    return div(nansum(x, dim, keepdim), sum(eq(x, x), dim, keepdim))


for _fn in (
    addcdiv, addcmul, allclose, cosh, count_nonzero, equal, isclose, log1p, logical_xor,
    nan_to_num, nanmean, nansum, power_of, sinh,
):  # fmt: skip
    register(_fn.__name__, _fn)
