# SPDX-License-Identifier: MIT
"""Reductions: sums, means, argmax and top_k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..backend.library import lib
from ..checks import flag, whole
from ..errors import ShapeError, fitting, shown
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.row_limits import limit_rows
from ..tensors.tensor import Tensor
from .elementwise import scale
from .operands import axis_of, contiguous, need_float, need_ndim, need_wholes
from .shape import getitem, permute, reshape

__all__ = [
    "argmax",
    "axes_of",
    "mean",
    "mean_rows",
    "ordered",
    "rows_over",
    "sum",
    "sum_rows",
    "sum_sqr",
    "top_k",
    "with_axes",
]


@on_demand
def sum_rows(x: Tensor) -> Tensor:
    """Sum over the last axis, which stays with extent one.

    Shape:
        x (..., C) -> (..., 1)

    Source: ggml_sum_rows.
    """
    need_float("sum_rows", "x", x)
    need_ndim("sum_rows", "x", x, 1, 2, 3, 4)
    return record(lib.ggml_sum_rows, [contiguous(x)], (*x.shape[:-1], 1))


def axes_of(who: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front: one, several, or all for None."""
    if dim is None:
        return tuple(range(ndim))
    dims = need_wholes(who, "dim", dim) if isinstance(dim, (list, tuple)) else [dim]
    axes = [axis_of(who, d, ndim, "dim") for d in dims]
    if len(set(axes)) != len(axes) or not axes:
        raise ShapeError(f"{who}: dim must name axes, each once; got {shown(dim)}")
    return tuple(sorted(axes))


def with_axes(
    reduced: Tensor, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool
) -> Tensor:
    """Return what is left of `shape` without axes, or with an extent of one in their place."""
    if keepdim:
        return reshape(reduced, [1 if a in axes else n for a, n in enumerate(shape)])
    return reshape(reduced, [n for a, n in enumerate(shape) if a not in axes])


def rows_over(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a matrix with a row of what is reduced for each element of the result."""
    others = [a for a in range(x.ndim) if a not in axes]
    across = math.prod(x.shape[a] for a in axes)
    return reshape(permute(x, [*others, *axes]), (x.numel() // across, across))


@on_demand
def sum(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Sum over axes, or over all elements.

    Args:
        x: f32 tensor.
        dim: an axis, several, or None for all.
        keepdim: leave the axes with extent one.

    Raises:
        ShapeError: x has no such axis.

    Source: ggml_sum, ggml_sum_rows.

    Example:
        >>> sum(ones((2, 3)), dim=0).numpy().tolist()
        [2.0, 2.0, 2.0]
    """
    return _sum("sum", x, dim, keepdim)


def _sum(who: str, x: Tensor, dim: int | Sequence[int] | None, keepdim: bool) -> Tensor:
    need_float(who, "x", x)
    keepdim = flag(who, "keepdim", keepdim)
    axes = axes_of(who, dim, x.ndim)
    if len(axes) == x.ndim and (dim is None or x.ndim > 1):
        total = record(lib.ggml_sum, [contiguous(x)], ())
    elif len(axes) == 1:
        total = sum_rows(permute(x, [*(a for a in range(x.ndim) if a not in axes), *axes]))
    else:
        total = sum_rows(rows_over(x, axes))
    return with_axes(total, x.shape, axes, keepdim)


@on_demand
def sum_sqr(x: Tensor) -> Tensor:
    """Sum of the squares of all elements, in one pass and accumulated in double.

    Shape:
        x (...) -> ()

    Source: ggml_sum_sqr.

    Example:
        >>> sum_sqr(tensor([3.0, 4.0])).item()
        25.0
    """
    need_float("sum_sqr", "x", x)
    return record(lib.ggml_sum_sqr, [x], ())


@on_demand
def mean(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Mean over axes, or over all elements; see `sum`."""
    need_float("mean", "x", x)
    n = math.prod(x.shape[a] for a in axes_of("mean", dim, x.ndim))
    return scale(_sum("mean", x, dim, keepdim), 1.0 / n)


@on_demand
def mean_rows(x: Tensor) -> Tensor:
    """Mean over the last axis, which stays with extent one.

    Shape:
        x (..., C) -> (..., 1)

    Source: ggml_mean.
    """
    need_float("mean_rows", "x", x)
    need_ndim("mean_rows", "x", x, 1, 2, 3, 4)
    return record(lib.ggml_mean, [contiguous(x)], (*x.shape[:-1], 1))


@fitting
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the place of the largest element along an axis, as i32; the first among equals.

    A NaN is larger than all numbers, as in PyTorch.

    Args:
        x: f32.
        dim: the axis; None for the place among all elements in order.
        keepdim: leave the axis with extent one.

    Raises:
        ShapeError: x has no such axis.

    Source: ggml_argmax.

    Example:
        >>> argmax(tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]]), dim=1).tolist()
        [1, 2]
    """
    need_float("argmax", "x", x)
    keepdim = flag("argmax", "keepdim", keepdim)
    axes = axes_of("argmax", dim, x.ndim)
    rows = rows_over(x, axes)
    result = record(lib.ggml_argmax, [contiguous(rows)], rows.shape[:1], False)
    limit_rows(result.node, rows.shape[1])
    return with_axes(result, x.shape, axes, keepdim)


@fitting
def top_k(x: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest elements of each row, the largest first.

    A NaN is larger than all numbers, as in PyTorch; on CUDA and Metal its place is undefined.

    Args:
        x: f32 tensor.
        k: how many, at most C.

    Shape:
        x (..., C) -> (..., k) i32

    Raises:
        TypeError: k is no whole number.
        ShapeError: k is not from 1 to C.

    Source: ggml_argsort.

    Example:
        >>> top_k(tensor([[1.0, 3.0, 2.0]]), 2).tolist()
        [[1, 2]]
    """
    return ordered("top_k", x, k, True)


def ordered(who: str, x: Tensor, k: int, largest: bool) -> Tensor:
    """Return the indices of the k largest or smallest elements of each row, in their order."""
    need_float(who, "x", x)
    need_ndim(who, "x", x, 1, 2, 3, 4)
    k = whole(who, "k", k)
    if not 1 <= k <= x.shape[-1]:
        raise ShapeError(
            f"{who}: k must be from 1 to {x.shape[-1]}, the last extent; got {shown(k)}"
        )
    order = lib.GGML_SORT_ORDER_DESC if largest else lib.GGML_SORT_ORDER_ASC
    places = record(lib.ggml_argsort, [contiguous(x), order], x.shape, False)
    limit_rows(places.node, x.shape[-1])
    return getitem(places, (..., slice(0, k)))
