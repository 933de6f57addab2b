# SPDX-License-Identifier: MIT
"""Reductions: sums, means, argmax and top_k."""

from __future__ import annotations

from ..backend.library import lib
from ..checks import flag, whole
from ..errors import ShapeError, shown
from ..tensors.record import record
from ..tensors.row_limits import limit_rows
from ..tensors.tensor import Tensor
from .elementwise import scale
from .operands import axis_of, contiguous, need_float, need_ndim
from .shape import getitem, permute, reshape

__all__ = ["argmax", "mean", "mean_rows", "sum", "sum_rows", "sum_sqr", "top_k"]


def sum_rows(x: Tensor) -> Tensor:
    """Sum over the last axis, which stays with extent one.

    Shape:
        x (..., C) -> (..., 1)

    Source: ggml_sum_rows.
    """
    need_float("sum_rows", "x", x)
    need_ndim("sum_rows", "x", x, 1, 2, 3, 4)
    return record(lib.ggml_sum_rows, [contiguous(x)], (*x.shape[:-1], 1))


def sum(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Sum over one axis, or over all elements.

    Args:
        x: f32 tensor.
        axis: None for all.
        keepdims: leave the axis with extent one.

    Raises:
        ShapeError: x has no such axis.

    Source: ggml_sum, ggml_sum_rows.

    Example:
        >>> sum(ones((2, 3)), axis=0).numpy().tolist()
        [2.0, 2.0, 2.0]
    """
    return _sum("sum", x, axis, keepdims)


def _sum(who: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    need_float(who, "x", x)
    keepdims = flag(who, "keepdims", keepdims)
    if axis is None:
        total = record(lib.ggml_sum, [contiguous(x)], ())
        return reshape(total, (1,) * x.ndim) if keepdims else total
    n = axis_of(who, axis, x.ndim)
    others = [a for a in range(x.ndim) if a != n]
    rows = sum_rows(permute(x, [*others, n]))
    kept = tuple(1 if a == n else extent for a, extent in enumerate(x.shape))
    return reshape(rows, kept if keepdims else [x.shape[a] for a in others])


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


def mean(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Mean over one axis, or over all elements; see `sum`."""
    need_float("mean", "x", x)
    n = x.size if axis is None else x.shape[axis_of("mean", axis, x.ndim)]
    return scale(_sum("mean", x, axis, keepdims), 1.0 / n)


def mean_rows(x: Tensor) -> Tensor:
    """Mean over the last axis, which stays with extent one.

    Shape:
        x (..., C) -> (..., 1)

    Source: ggml_mean.
    """
    need_float("mean_rows", "x", x)
    need_ndim("mean_rows", "x", x, 1, 2, 3, 4)
    return record(lib.ggml_mean, [contiguous(x)], (*x.shape[:-1], 1))


def argmax(x: Tensor) -> Tensor:
    """Return the index of the largest element of each row; the first among equals.

    A NaN is larger than all numbers, as in PyTorch.

    Shape:
        x (N, C) or (C,) -> (N,) or () i32

    Source: ggml_argmax.
    """
    need_float("argmax", "x", x)
    need_ndim("argmax", "x", x, 1, 2)
    result = record(lib.ggml_argmax, [contiguous(x)], (x.shape[0] if x.ndim == 2 else 1,), False)
    limit_rows(result.node, x.shape[-1])
    return result if x.ndim == 2 else reshape(result, ())


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
    need_float("top_k", "x", x)
    need_ndim("top_k", "x", x, 1, 2, 3, 4)
    k = whole("top_k", "k", k)
    if not 1 <= k <= x.shape[-1]:
        raise ShapeError(
            f"top_k: k must be from 1 to {x.shape[-1]}, the last extent; got {shown(k)}"
        )
    order = record(lib.ggml_argsort, [contiguous(x), lib.GGML_SORT_ORDER_DESC], x.shape, False)
    limit_rows(order.node, x.shape[-1])
    return getitem(order, (..., slice(0, k)))
