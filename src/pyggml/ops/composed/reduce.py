# SPDX-License-Identifier: MIT
"""Reductions over any axes, made of ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...checks import flag, number
from ...errors import ShapeError, composed, shown
from ...tensors.on_demand import on_demand
from ...tensors.record import without_gradient
from ...tensors.tensor import Tensor
from ...tensors.truth import note_mask
from ..attention import soft_max
from ..elementwise import abs, add, clamp, exp, log, mul, neg, pow, scale, sqr, step, sub
from ..operands import axis_of, copied, need_float
from ..reductions import argmax, axes_of, mean, rows_over, sum, with_axes
from ..shape import getitem, reshape, transpose
from .compare import logical_not, truth_of
from .join import cat
from .select import ValuesIndices, gather

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmin",
    "log_softmax",
    "logsumexp",
    "max",
    "min",
    "prod",
    "softmax",
    "std",
    "var",
    "vector_norm",
]

Dims = int | Sequence[int] | None
_FLT_MAX = (2.0 - 2.0**-23) * 2.0**127


def _truth(mask: Tensor) -> Tensor:
    note_mask(mask.node)
    return mask


@composed
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the place of the smallest element; see `argmax`."""
    return argmax(neg(need_float("argmin", "x", x)), dim, keepdim)


def _largest(who: str, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Gather the first largest element of what is reduced, which gets the whole gradient."""
    need_float(who, "x", x)
    axes, keep = axes_of(who, dim, x.ndim), flag(who, "keepdim", keepdim)
    rows = rows_over(x, axes)
    found = gather(rows, 1, reshape(argmax(rows, 1), (rows.shape[0], 1)))
    return with_axes(found, x.shape, axes, keep)


@composed
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the largest elements over axes.

    The first of equal elements gets the gradient.

    Args:
        x: f32.
        dim: an axis, several, or None for all.
        keepdim: leave the axes with extent one.

    Raises:
        ShapeError: x has no such axis.

    Source: torch.amax; ggml_argmax, ggml_get_rows.

    Example:
        >>> amax(tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1).tolist()
        [5.0, 3.0]
    """
    return _largest("amax", x, dim, keepdim)


@composed
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the smallest elements over axes; see `amax`."""
    return neg(_largest("amin", neg(need_float("amin", "x", x)), dim, keepdim))


def _no_second(who: str, instead: str, dim: Any) -> None:
    if isinstance(dim, Tensor):
        raise TypeError(
            f"{who}: dim must be a whole number; got a Tensor: of two tensors, element by element,"
            f" use pg.{instead}(a, b)"
        )


@composed
def max(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the largest element; along an axis, the largest ones and their places.

    Args:
        x: f32.
        dim: None for the largest of all.
        keepdim: leave the axis with extent one.

    Returns:
        A scalar, or `values` and `indices` (i32).

    Raises:
        ShapeError: x has no such axis.

    Source: torch.max; ggml_argmax, ggml_get_rows.

    Example:
        >>> values, places = max(tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
        >>> values.tolist(), places.tolist()
        ([5.0, 3.0], [1, 0])
    """
    _no_second("max", "maximum", dim)
    values = _largest("max", x, dim, keepdim)
    return values if dim is None else ValuesIndices(values, argmax(x, dim, keepdim))


@composed
def min(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the smallest element; along an axis, the smallest ones and their places; see `max`."""
    _no_second("min", "minimum", dim)
    values = amin(x, dim, keepdim)
    return values if dim is None else ValuesIndices(values, argmin(x, dim, keepdim))


@composed
def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """1 where x has an element that is not 0 along the axes, else 0.

    Example:
        >>> any(tensor([[0.0, 1.0], [0.0, 0.0]]), dim=1).tolist()
        [1.0, 0.0]
    """
    return _truth(step(sum(truth_of("any", "x", x), dim, keepdim)))


@composed
def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """1 where no element of x is 0 along the axes, else 0; see `any`."""
    need_float("all", "x", x)
    return logical_not(_truth(step(sum(logical_not(x), dim, keepdim))))


@composed
def prod(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the product of the elements along an axis, or of all.

    Args:
        x: f32.
        dim: None for all.
        keepdim: leave the axis with extent one.

    Raises:
        ShapeError: x has no such axis.

    Source: torch.prod; ggml_mul of halves.

    Example:
        >>> prod(tensor([2.0, 3.0, 4.0])).item()
        24.0
    """
    need_float("prod", "x", x)
    keep = flag("prod", "keepdim", keepdim)
    axes = axes_of("prod", dim, x.ndim)
    columns = transpose(rows_over(x, axes))
    n = columns.shape[0]
    if n == 1:
        columns = copied(columns)
    while n > 1:
        half = n // 2
        odd = getitem(columns, slice(2 * half, n)) if n % 2 else None
        columns = mul(getitem(columns, slice(0, half)), getitem(columns, slice(half, 2 * half)))
        if odd is not None:
            first = mul(getitem(columns, slice(0, 1)), odd)
            columns = cat([first, getitem(columns, slice(1, half))]) if half > 1 else first
        n = half
    return with_axes(columns, x.shape, axes, keep)


@on_demand
@composed
def var(
    x: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    correction: float = 1.0,
    unbiased: bool | None = None,
) -> Tensor:
    """Return the variance over axes.

    Args:
        x: f32.
        dim: an axis, several, or None for all.
        keepdim: leave the axes with extent one.
        correction: taken from the number of elements before it divides the sum of squares.
        unbiased: PyTorch's older name: True is a correction of 1, False of 0.

    Raises:
        ShapeError: x has no such axis.
        ValueError: there are no more elements than `correction`.

    Source: torch.var.

    Example:
        >>> var(tensor([1.0, 2.0, 3.0, 4.0]), correction=0).item()
        1.25
    """
    return _variance("var", x, dim, keepdim, _correction("var", correction, unbiased))


def _correction(who: str, correction: float, unbiased: bool | None) -> float:
    return correction if unbiased is None else float(flag(who, "unbiased", unbiased))


def _variance(who: str, x: Tensor, dim: Dims, keepdim: bool, correction: float) -> Tensor:
    need_float(who, "x", x)
    axes = axes_of(who, dim, x.ndim)
    n = math.prod(x.shape[a] for a in axes)
    less = number(who, "correction", correction)
    if not n > less:
        raise ValueError(
            f"{who}: correction must be below the number of elements of x along dim, {n};"
            f" got {less:g}"
        )
    squares = sqr(sub(x, mean(x, axes, True)))
    return scale(sum(squares, axes, keepdim), 1.0 / (n - less))


def _root(x: Tensor, exponent: float) -> Tensor:
    """Return a power of what is not below 0, with a gradient of 0 at 0."""
    zero = logical_not(_truth(step(without_gradient(x))))
    return sub(pow(add(x, zero), exponent), zero)


@on_demand
@composed
def std(
    x: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    correction: float = 1.0,
    unbiased: bool | None = None,
) -> Tensor:
    """Return the standard deviation over axes; see `var`."""
    variance = _variance("std", x, dim, keepdim, _correction("std", correction, unbiased))
    return _root(variance, 0.5)


@on_demand
@composed
def vector_norm(x: Tensor, ord: float = 2.0, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return (sum of |x|^ord)^(1/ord) over axes; its gradient at 0 is 0.

    Args:
        x: f32.
        ord: 1, 2 or another number above 0, or inf for the largest magnitude.
        dim: an axis, several, or None for all.
        keepdim: leave the axes with extent one.

    Raises:
        ShapeError: x has no such axis.
        ValueError: ord is not above 0.

    Source: torch.linalg.vector_norm.

    Example:
        >>> vector_norm(tensor([3.0, 4.0])).item()
        5.0
    """
    need_float("vector_norm", "x", x)
    ord = number("vector_norm", "ord", ord, finite=False)
    if not ord > 0:
        raise ValueError(f"vector_norm: ord must be > 0, or inf; got {shown(ord)}")
    if math.isinf(ord):
        return _largest("vector_norm", abs(x), dim, keepdim)
    if ord == 2:
        return _root(sum(sqr(x), dim, keepdim), 0.5)
    if ord == 1:
        return sum(abs(x), dim, keepdim)
    return _root(sum(pow(abs(x), ord), dim, keepdim), 1.0 / ord)


def _last(who: str, x: Tensor, dim: int) -> int:
    need_float(who, "x", x)
    if x.ndim == 0:
        raise ShapeError(f"{who}: x must have an axis; got a scalar")
    return axis_of(who, dim, x.ndim, "dim")


@on_demand
@composed
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) divided by its sum along an axis.

    Raises:
        ShapeError: x has no such axis.

    Source: ggml_soft_max.

    Example:
        >>> softmax(tensor([[0.0, 0.0]])).tolist()
        [[0.5, 0.5]]
    """
    axis = _last("softmax", x, dim)
    if axis == x.ndim - 1:
        return soft_max(x)
    return transpose(soft_max(transpose(x, axis, -1)), axis, -1)


@on_demand
@composed
def logsumexp(x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Logarithm of the sum of exp(x) along an axis, without overflow.

    Args:
        x: f32.
        dim: the axis.
        keepdim: leave the axis with extent one.

    Raises:
        ShapeError: x has no such axis.

    Source: torch.logsumexp.

    Example:
        >>> round(logsumexp(tensor([1000.0, 1000.0])).item(), 3)
        1000.693
    """
    axis = _last("logsumexp", x, dim)
    # The largest is taken away and added: its gradients would cancel.
    most = clamp(without_gradient(_largest("logsumexp", x, axis, True)), -_FLT_MAX, _FLT_MAX)
    total = add(log(sum(exp(sub(x, most)), axis, True)), most)
    return with_axes(total, x.shape, (axis,), flag("logsumexp", "keepdim", keepdim))


@on_demand
@composed
def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """x less the logarithm of the sum of exp(x) along an axis; see `logsumexp`."""
    axis = _last("log_softmax", x, dim)
    return sub(x, logsumexp(x, axis, True))
