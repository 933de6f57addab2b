# SPDX-License-Identifier: MIT
"""Elements by their numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...errors import DTypeError, ShapeError, composed, shown
from ...tensors.create import tensor
from ...tensors.tensor import Tensor
from ...tensors.tracing import is_input, outer
from ..operands import axis_of, need_dtype, need_float, need_ndim, need_tensor
from ..reductions import ordered
from ..rows import check_row_numbers, get_rows
from ..shape import cast, permute, reshape, transpose

__all__ = ["ValuesIndices", "gather", "index_select", "numbers_of", "topk"]


class ValuesIndices(NamedTuple):
    """Elements along an axis, and their places, under PyTorch's names.

    Args:
        values: the elements.
        indices: their places, i32.
    """

    values: Tensor
    indices: Tensor


def numbers_of(who: str, name: str, index: Any, n: int, x: Tensor) -> Tensor:
    """Return whole numbers as an i32 tensor on the device of `x`, negative ones from the end."""
    if isinstance(index, Tensor):
        need_dtype(who, name, index, "i32")
        rows = _from_the_front(index, n)
        check_row_numbers(who, name, rows, n)
        return rows
    try:
        array = np.asarray(index)
    except ValueError:  # ragged lists
        array = np.empty(0)
    if array.dtype.kind not in "iu" or not array.size:
        raise IndexError(f"{who}: {name} must hold whole numbers; got {shown(index)}")
    if array.min() < -n or array.max() >= n:
        raise IndexError(
            f"{who}: {name} must be from {-n} to {n - 1} for that dim of x; got"
            f" {array.min()} to {array.max()}"
        )
    return tensor(np.where(array < 0, array + n, array).astype(np.int32), "i32", x.device)


def _from_the_front(index: Tensor, n: int) -> Tensor:
    """Return stored numbers with negative ones counted from the end, outside of recordings."""
    if not index.is_stored or outer() is not None or is_input(index.node):
        return index
    array = index.numpy()
    if array.size == 0 or array.min() >= 0 or array.min() < -n:
        return index
    return tensor(np.where(array < 0, array + n, array).astype(np.int32), "i32", index.device)


@composed
def index_select(x: Tensor, dim: int, index: Any) -> Tensor:
    """Return the elements of an axis that have these numbers, copied.

    Args:
        x: f32, f16, bf16 or quantised, which comes as f32; or i32, which stays exact.
        dim: the axis.
        index: whole numbers, (K,): an array, a list, or an i32 tensor.

    Shape:
        x (..., N, ...), index (K,) -> (..., K, ...)

    Raises:
        IndexError: a number is out of range.
        ShapeError: there is no such axis.

    Source: ggml_get_rows; torch.index_select.

    Example:
        >>> index_select(tensor([[1.0, 2.0, 3.0]]), 1, [2, 0]).tolist()
        [[3.0, 1.0]]
    """
    need_tensor("index_select", "x", x)
    axis = axis_of("index_select", dim, x.ndim, "dim")
    ids = numbers_of("index_select", "index", index, x.shape[axis], x)
    need_ndim("index_select", "index", ids, 1)
    order = [axis, *(a for a in range(x.ndim) if a != axis)]
    front = permute(x, order) if axis else x
    rest = front.shape[1:]
    rows = get_rows(reshape(front, (x.shape[axis], math.prod(rest))), ids)
    taken = reshape(rows, (ids.shape[0], *rest))
    return permute(taken, np.argsort(order).tolist()) if axis else taken


@composed
def gather(x: Tensor, dim: int, index: Any) -> Tensor:
    """Return for each place the element of an axis that `index` names there.

    Args:
        x: f32 or i32.
        dim: the axis.
        index: whole numbers with extents no larger than those of x but along `dim`: an array,
            lists, or an i32 tensor that is stored or comes from argmax.

    Shape:
        x (..., N), index (..., K) -> (..., K) for the last axis; others alike

    Raises:
        ShapeError: another extent of index is larger than that of x.
        IndexError: a number is out of range.

    Source: torch.gather; ggml_get_rows.

    Example:
        >>> gather(tensor([[1.0, 2.0], [3.0, 4.0]]), 1, [[1], [0]]).tolist()
        [[2.0], [3.0]]
    """
    need_dtype("gather", "x", x, "f32", "i32")
    axis = axis_of("gather", dim, x.ndim, "dim")
    ids = numbers_of("gather", "index", index, x.shape[axis], x)
    others = [s[:axis] + s[axis + 1 :] for s in (x.shape, ids.shape)]
    if ids.ndim != x.ndim or any(k > n for n, k in zip(*others, strict=True)):
        raise ShapeError(
            f"gather: index must be no larger than x but along dim={axis}; got"
            f" x.shape={x.shape}, index.shape={ids.shape}"
        )
    if others[0] != others[1]:
        x = x[tuple(slice(None if a == axis else k) for a, k in enumerate(ids.shape))]
    if axis == x.ndim - 1:
        return _gather_last(x, ids)
    # Whole numbers are not copied into another order: each column is a row number of its own.
    if outer() is not None and not ids.is_stored:
        raise ShapeError(
            "gather: along another axis than the last, index must be stored; use x.transpose"
        )
    moved = tensor(np.swapaxes(ids.numpy(), axis, -1), "i32", x.device)
    return transpose(_gather_last(transpose(x, axis, -1), moved), axis, -1)


def _gather_last(x: Tensor, ids: Tensor) -> Tensor:
    n, rows = x.shape[-1], math.prod(x.shape[:-1])
    found = get_rows(reshape(x, (rows, n, 1)), reshape(ids, (rows, ids.shape[-1])))
    return reshape(found, ids.shape)


@composed
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> ValuesIndices:
    """Return the k largest elements along an axis and their places, the largest first.

    A NaN is larger than all numbers; on CUDA and Metal its place is undefined.

    Args:
        x: f32.
        k: how many.
        dim: the axis.
        largest: False takes the smallest, the smallest first.

    Returns:
        `values` (..., k), through which gradients flow, and `indices` (..., k) i32; k stands at
        `dim`.

    Raises:
        ShapeError: k is not from 1 to the extent, or there is no such axis.

    Source: torch.topk; ggml_argsort.

    Example:
        >>> values, places = topk(tensor([1.0, 3.0, 2.0]), 2)
        >>> values.tolist(), places.tolist()
        ([3.0, 2.0], [1, 2])
    """
    need_float("topk", "x", x)
    axis = axis_of("topk", dim, x.ndim, "dim")
    if not isinstance(largest, bool):
        raise DTypeError(f"topk: largest must be True or False; got {shown(largest)}")
    rows = x if axis == x.ndim - 1 else transpose(x, axis, -1)
    places = ordered("topk", rows, k, largest)
    found = ValuesIndices(_gather_last(rows, places), places)
    if axis == x.ndim - 1:
        return found
    # Whole numbers up to 2^24 are exact in f32, which can be transposed.
    turned = cast(transpose(cast(places, "f32"), axis, -1), "i32")
    return ValuesIndices(transpose(found.values, axis, -1), turned)
