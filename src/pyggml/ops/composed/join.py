# SPDX-License-Identifier: MIT
"""Joining, splitting and reordering of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend.dtypes import i32
from ...checks import whole
from ...errors import ShapeError, composed, shown
from ...tensors.on_demand import on_demand
from ...tensors.storage import MAX_DIMS
from ...tensors.tensor import Tensor
from ..operands import axis_of, copied, need_tensor, need_wholes
from ..rows import compute_wholes
from ..shape import concat, getitem, repeat, reshape
from .select import index_select

__all__ = [
    "cat",
    "chunk",
    "flatten",
    "flip",
    "narrow",
    "split",
    "squeeze",
    "stack",
    "tile",
    "unbind",
    "unflatten",
    "unsqueeze",
]


@composed
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors along an axis.

    Whole numbers, which may be row numbers, are computed now where they are not stored, unless a
    function is being recorded.

    Args:
        tensors: of equal shapes but for `dim`, and equal dtypes.
        dim: the axis.

    Raises:
        ShapeError: other extents differ, or there is no such axis.
        DTypeError: the dtypes differ.

    Source: ggml_concat.

    Example:
        >>> cat([ones((1, 2)), ones((3, 2))]).shape
        (4, 2)
    """
    given = _tensors("cat", tensors)
    for x in given:
        if x.dtype is i32:
            compute_wholes(x)
    return concat(given, axis_of("cat", dim, given[0].ndim, "dim", "tensors[0]"))


@composed
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Args:
        tensors: of equal shapes and dtypes, with at most three axes.
        dim: where the new axis is.

    Raises:
        ShapeError: the shapes differ, or there would be more than four axes.

    Source: ggml_concat.

    Example:
        >>> stack([ones((2,)), ones((2,))], dim=1).shape
        (2, 2)
    """
    given = _tensors("stack", tensors)
    for x in given:
        if x.shape != given[0].shape:
            raise ShapeError(
                f"stack: the shapes of tensors must be equal; got {given[0].shape}, {x.shape}"
            )
        if x.dtype is i32:
            compute_wholes(x)
    return concat([_unsqueeze("stack", x, dim) for x in given], dim)


def _tensors(who: str, tensors: Any) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{who}: tensors must be a list of tensors; got {shown(tensors)}")
    if not tensors:
        raise ShapeError(f"{who}: tensors must hold at least one tensor; got none")
    return [need_tensor(who, f"tensors[{i}]", x) for i, x in enumerate(tensors)]


@composed
def split(x: Tensor, sizes: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Cut a tensor into parts along an axis.

    Args:
        x: any dtype.
        sizes: the extent of each part, of which the last may be shorter; or the extents of all,
            whose sum is that of the axis.
        dim: the axis.

    Returns:
        The parts, as views where that is possible.

    Raises:
        ShapeError: the extents do not fill the axis, or there is no such axis.

    Source: torch.split; ggml_view_4d.

    Example:
        >>> [part.shape for part in split(ones((5, 2)), 2)]
        [(2, 2), (2, 2), (1, 2)]
    """
    need_tensor("split", "x", x)
    axis = axis_of("split", dim, x.ndim, "dim")
    n = x.shape[axis]
    if isinstance(sizes, (list, tuple)):
        extents = need_wholes("split", "sizes", sizes)
    else:
        each = whole("split", "sizes", sizes, 1)
        extents = [min(each, n - start) for start in range(0, n, each)]
    if sum(extents) != n or min(extents, default=0) < 1:
        raise ShapeError(
            f"split: sizes must be extents from 1 whose sum is {n}, that of axis {axis} of"
            f" x.shape={x.shape}; got {shown(sizes)}"
        )
    ends = np.cumsum(extents).tolist()
    return [_part(x, axis, end - extent, end) for extent, end in zip(extents, ends, strict=True)]


def _part(x: Tensor, axis: int, start: int, end: int) -> Tensor:
    return getitem(x, (*(slice(None),) * axis, slice(start, end)))


@composed
def chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """Cut a tensor into a number of parts along an axis; the last may be shorter, or missing.

    Args:
        x: any dtype.
        chunks: how many, from 1.
        dim: the axis.

    Source: torch.chunk.

    Example:
        >>> [part.shape for part in chunk(ones((2, 6)), 3, dim=1)]
        [(2, 2), (2, 2), (2, 2)]
    """
    need_tensor("chunk", "x", x)
    axis = axis_of("chunk", dim, x.ndim, "dim")
    return split(x, -(-x.shape[axis] // whole("chunk", "chunks", chunks, 1)), axis)


@composed
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """Return the parts of a tensor along an axis, without that axis.

    Example:
        >>> [part.shape for part in unbind(ones((2, 3)), dim=1)]
        [(2,), (2,), (2,)]
    """
    need_tensor("unbind", "x", x)
    axis = axis_of("unbind", dim, x.ndim, "dim")
    before = (slice(None),) * axis
    return [getitem(x, (*before, i)) for i in range(x.shape[axis])]


@on_demand
@composed
def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Return `length` elements of an axis from `start`.

    Raises:
        ShapeError: the axis has no such part.

    Source: torch.narrow; ggml_view_4d.

    Example:
        >>> narrow(tensor([1.0, 2.0, 3.0]), 0, 1, 2).tolist()
        [2.0, 3.0]
    """
    need_tensor("narrow", "x", x)
    axis = axis_of("narrow", dim, x.ndim, "dim")
    first, n = whole("narrow", "start", start), x.shape[axis]
    count = whole("narrow", "length", length, 1)
    first += n if first < 0 else 0
    if not 0 <= first <= n - count:
        raise ShapeError(
            f"narrow: start and length must lie in axis {axis} of x.shape={x.shape}; got"
            f" start={start}, length={length}"
        )
    return _part(x, axis, first, first + count)


@on_demand
@composed
def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Take axes of extent one away.

    Args:
        x: any dtype.
        dim: which; those of another extent stay. None takes all.

    Raises:
        ShapeError: there is no such axis.

    Source: torch.squeeze; ggml_reshape_4d.

    Example:
        >>> squeeze(ones((1, 3, 1))).shape, squeeze(ones((1, 3, 1)), 0).shape
        ((3,), (3, 1))
    """
    need_tensor("squeeze", "x", x)
    if dim is None:
        gone = set(range(x.ndim))
    else:
        dims = need_wholes("squeeze", "dim", dim if isinstance(dim, (list, tuple)) else [dim])
        gone = {axis_of("squeeze", d, x.ndim, "dim") for d in dims}
    return reshape(x, [n for a, n in enumerate(x.shape) if a not in gone or n != 1])


def _unsqueeze(who: str, x: Tensor, dim: int) -> Tensor:
    if x.ndim == MAX_DIMS:
        raise ShapeError(f"{who}: x must have fewer than {MAX_DIMS} axes; got {x.shape}")
    axis = axis_of(who, dim, x.ndim + 1, "dim", "the result")
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@on_demand
@composed
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """Give a tensor an axis of extent one.

    Raises:
        ShapeError: there would be more than four axes, or there is no such place.

    Source: torch.unsqueeze; ggml_reshape_4d.

    Example:
        >>> unsqueeze(ones((2, 3)), -1).shape
        (2, 3, 1)
    """
    return _unsqueeze("unsqueeze", need_tensor("unsqueeze", "x", x), dim)


@on_demand
@composed
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Make one axis of several neighbouring ones.

    Args:
        x: any dtype.
        start_dim, end_dim: the first and the last of them.

    Raises:
        ShapeError: there are no such axes, or the last is before the first.

    Source: torch.flatten; ggml_reshape_4d.

    Example:
        >>> flatten(ones((2, 3, 4)), 1).shape
        (2, 12)
    """
    need_tensor("flatten", "x", x)
    if x.ndim == 0:
        return reshape(x, (1,))
    first = axis_of("flatten", start_dim, x.ndim, "start_dim")
    last = axis_of("flatten", end_dim, x.ndim, "end_dim")
    if last < first:
        raise ShapeError(
            f"flatten: end_dim must not be before start_dim; got start_dim={start_dim},"
            f" end_dim={end_dim}"
        )
    merged = math.prod(x.shape[first : last + 1])
    return reshape(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


@on_demand
@composed
def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Make several axes of one.

    Args:
        x: any dtype.
        dim: the axis.
        sizes: the extents; one may be -1.

    Raises:
        ShapeError: the extents do not fill the axis.

    Source: torch.unflatten; ggml_reshape_4d.

    Example:
        >>> unflatten(ones((2, 12)), 1, (3, -1)).shape
        (2, 3, 4)
    """
    need_tensor("unflatten", "x", x)
    axis = axis_of("unflatten", dim, x.ndim, "dim")
    extents, n = need_wholes("unflatten", "sizes", sizes), x.shape[axis]
    if extents.count(-1) == 1:
        rest = math.prod(e for e in extents if e != -1)
        extents[extents.index(-1)] = n // rest if rest > 0 and n % rest == 0 else -1
    if not extents or min(extents) < 1 or math.prod(extents) != n:
        raise ShapeError(f"unflatten: sizes must fill dim={axis} of x, {n}; got {shown(sizes)}")
    return reshape(x, (*x.shape[:axis], *extents, *x.shape[axis + 1 :]))


@composed
def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Repeat a tensor along its axes, as PyTorch's `x.repeat`.

    Args:
        x: f32, f16, bf16 or i32.
        repeats: how often, for each axis; more of them than axes add axes in front.

    Raises:
        ShapeError: a number is below 1, or there are fewer than axes.

    Source: ggml_repeat_4d.

    Example:
        >>> tile(tensor([1.0, 2.0]), (2, 2)).tolist()
        [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    need_tensor("tile", "x", x)
    times = need_wholes("tile", "repeats", repeats)
    if not x.ndim <= len(times) <= MAX_DIMS or min(times, default=1) < 1:
        raise ShapeError(
            f"tile: repeats must be {max(x.ndim, 1)} to {MAX_DIMS} whole numbers from 1 for"
            f" x.shape={x.shape}; got {shown(repeats)}"
        )
    shape = (*(1,) * (len(times) - x.ndim), *x.shape)
    new = tuple(n * t for n, t in zip(shape, times, strict=True))
    stretched = reshape(x, shape)
    return copied(stretched) if new == shape else repeat(stretched, new)


@composed
def flip(x: Tensor, dims: int | Sequence[int]) -> Tensor:
    """Reverse the order of the elements along axes, copying.

    Raises:
        ShapeError: there is no such axis.

    Source: torch.flip; ggml_get_rows.

    Example:
        >>> flip(tensor([1.0, 2.0, 3.0]), 0).tolist()
        [3.0, 2.0, 1.0]
    """
    need_tensor("flip", "x", x)
    axes = need_wholes("flip", "dims", dims if isinstance(dims, (list, tuple)) else [dims])
    for dim in axes:
        axis = axis_of("flip", dim, x.ndim, "dims")
        x = index_select(x, axis, np.arange(x.shape[axis])[::-1])
    return x if axes else copied(x)
