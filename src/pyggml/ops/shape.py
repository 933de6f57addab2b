# SPDX-License-Identifier: MIT
"""Ops that move elements and change no number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.dtypes import DType, as_dtype, f32, is_dtype
from ..backend.library import lib
from ..errors import DTypeError, ShapeError, shown
from ..tensors.on_demand import on_demand
from ..tensors.operators import register
from ..tensors.record import record
from ..tensors.storage import MAX_DIMS, check_shape, ne_of, whole_numbers
from ..tensors.tensor import Tensor
from ..tensors.truth import is_mask, note_numbers
from .operands import axis_of, broadcast, contiguous, conversion, copied, need_tensor, need_wholes

__all__ = [
    "broadcast_to",
    "cast",
    "concat",
    "cont",
    "convert",
    "getitem",
    "permute",
    "repeat",
    "reshape",
    "reshaped",
    "transpose",
]


@on_demand
def cont(x: Tensor) -> Tensor:
    """Return x with its elements in order in memory. Source: ggml_cont."""
    return contiguous(need_tensor("cont", "x", x))


@on_demand
def reshape(x: Tensor, shape: Any) -> Tensor:
    """Return the elements in another shape; they are copied only when they are out of order.

    Args:
        x: tensor.
        shape: new extents; one of them may be -1.

    Raises:
        TypeError: shape is no whole number and no list of them.
        ShapeError: the number of elements would change.

    Source: ggml_reshape_4d.

    Example:
        >>> reshape(ones((2, 6)), (3, -1)).shape
        (3, 4)
    """
    need_tensor("reshape", "x", x)
    given = whole_numbers([shape] if isinstance(shape, (int, np.integer)) else shape)
    wanted = shape if given is None else given  # check_shape tells what is wrong with it
    if given is not None and given.count(-1) == 1:
        rest = math.prod(n for n in given if n != -1)
        if rest < 1 or x.numel() % rest:
            raise ShapeError(
                f"reshape: {x.numel()} elements do not fill shape {shown(tuple(given))}"
            )
        wanted[given.index(-1)] = x.numel() // rest
    new = check_shape("reshape", wanted)
    if math.prod(new) != x.numel():
        raise ShapeError(
            f"reshape: the number of elements must stay {x.numel()}, x.shape={x.shape};"
            f" got shape {new}"
        )
    if x.dtype.quantized and (not new or new[-1] % x.dtype.block_size):
        raise ShapeError(f"reshape: rows of {x.dtype.name} must stay whole blocks; got shape {new}")
    return reshaped(x, new)


def reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the elements in a shape that is known to hold as many."""
    if shape == x.shape:
        return x
    return record(lib.ggml_reshape_4d, [contiguous(x), *ne_of(shape)], shape)


@on_demand
def permute(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Reorder the axes without a copy: axis i of the result is axis axes[i] of x.

    Raises:
        TypeError: `axes` is no list of whole numbers.
        ShapeError: `axes` is not a permutation of x's axes.
        DTypeError: the last axis of a quantised tensor would move.

    Source: ggml_permute.

    Example:
        >>> permute(ones((2, 3, 4)), (0, 2, 1)).shape
        (2, 4, 3)
    """
    need_tensor("permute", "x", x)
    n = x.ndim
    order = [a % n if -n <= a < n else n for a in need_wholes("permute", "axes", axes)]
    if sorted(order) != list(range(n)):
        raise ShapeError(f"permute: axes must name each of x's {n} axes once; got {shown(axes)}")
    if order == list(range(n)):
        return x
    if x.dtype.quantized and order[-1] != n - 1:
        raise DTypeError(
            f"permute: axes must leave the last axis of {x.dtype.name} where it is; cast x to f32"
            " first"
        )
    new = tuple(x.shape[a] for a in order)
    target = list(range(MAX_DIMS))
    for i, axis in enumerate(order):
        target[n - 1 - axis] = n - 1 - i
    return record(lib.ggml_permute, [x, *target], new)


@on_demand
def transpose(x: Tensor, dim0: int = -1, dim1: int = -2) -> Tensor:
    """Swap two axes without a copy.

    Raises:
        ShapeError: x has no such axes.
    """
    need_tensor("transpose", "x", x)
    order = list(range(x.ndim))
    i, j = (
        axis_of("transpose", dim, x.ndim, name) for name, dim in (("dim0", dim0), ("dim1", dim1))
    )
    order[i], order[j] = order[j], order[i]
    return permute(x, order)


@on_demand
def broadcast_to(x: Tensor, shape: Any) -> Tensor:
    """Stretch extents of one to `shape`, as NumPy's broadcast_to, copying.

    Raises:
        ShapeError: x does not broadcast to `shape`.

    Source: ggml_repeat_4d.
    """
    need_tensor("broadcast_to", "x", x)
    new = check_shape("broadcast_to", shape)
    if broadcast("broadcast_to", x=x.shape, shape=new) != new:
        raise ShapeError(f"broadcast_to: x.shape={x.shape} does not stretch to shape {new}")
    return _repeat_to("broadcast_to", x, new)


@on_demand
def repeat(x: Tensor, shape: Any) -> Tensor:
    """Tile x until it has `shape`; each extent must be a multiple of x's.

    Raises:
        ShapeError: an extent is not a multiple.

    Source: ggml_repeat_4d.

    Example:
        >>> repeat(ones((2, 3)), (4, 3)).shape
        (4, 3)
    """
    need_tensor("repeat", "x", x)
    new = check_shape("repeat", shape)
    if any(n % m for n, m in zip(ne_of(new), ne_of(x.shape), strict=True)) or len(new) < x.ndim:
        raise ShapeError(
            f"repeat: shape {new} must be a multiple of x.shape={x.shape} in every extent"
        )
    return _repeat_to("repeat", x, new)


def _repeat_to(who: str, x: Tensor, new: tuple[int, ...]) -> Tensor:
    if new == x.shape:
        return x
    if math.prod(new) == x.numel():
        return reshape(x, new)
    if x.dtype.name not in ("f32", "f16", "bf16", "i32"):
        raise DTypeError(f"{who}: x must be f32, f16, bf16 or i32; got {x.dtype.name}")
    return record(lib.ggml_repeat_4d, [contiguous(x), *ne_of(new)], new)


@on_demand
def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along an axis.

    Args:
        tensors: at least one; equal shapes but for `axis`, equal dtypes.
        axis: where to join.

    Raises:
        ShapeError: other extents differ.
        DTypeError: the dtypes differ.

    Source: ggml_concat.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"concat: tensors must be a list of tensors; got {shown(tensors)}")
    if not tensors:
        raise ShapeError("concat: tensors must hold at least one tensor; got none")
    result = need_tensor("concat", "tensors[0]", tensors[0])
    n = axis_of("concat", axis, result.ndim, of="the tensors")
    for i, other in enumerate(tensors[1:], 1):
        need_tensor("concat", f"tensors[{i}]", other)
        rest = [s[:n] + s[n + 1 :] for s in (result.shape, other.shape)]
        if other.ndim != result.ndim or rest[0] != rest[1]:
            raise ShapeError(
                f"concat: the shapes of tensors must agree but for axis {n};"
                f" got {result.shape}, {other.shape}"
            )
        if other.dtype != result.dtype or result.dtype.quantized:
            raise DTypeError(
                f"concat: the dtypes of tensors must be equal and plain; got {result.dtype.name},"
                f" {other.dtype.name}"
            )
        joined = (*result.shape[:n], result.shape[n] + other.shape[n], *result.shape[n + 1 :])
        args = [contiguous(result), contiguous(other), result.ndim - 1 - n]
        result = record(lib.ggml_concat, args, joined)
    return copied(result) if len(tensors) == 1 and not result.dtype.quantized else result


@on_demand
def cast(x: Tensor, dtype: DType | str) -> Tensor:
    """Return the numbers in another dtype.

    Raises:
        DTypeError: ggml does not convert between the two.

    Source: ggml_cast.
    """
    need_tensor("cast", "x", x)
    try:
        to = as_dtype(dtype)
    except DTypeError as error:
        raise DTypeError(f"cast: {error}") from None
    if to == x.dtype:
        return x
    plain = ("f32", "f16", "bf16")
    known = (
        (x.dtype.name in plain and to.name in plain)
        or (x.dtype.quantized and to.name == "f32")
        or {x.dtype.name, to.name} == {"f32", "i32"}
    )
    if not known:
        cure = "go through f32"
        if to.name not in (*plain, "i32"):
            cure = "choose f32, f16, bf16 or i32"
        elif not x.dtype.quantized and x.dtype.name not in (*plain, "i32"):
            cure = f"use {conversion('x', x, to.name)}"
        raise DTypeError(
            f"cast: ggml does not convert x of {x.dtype.name} to dtype {to.name}; {cure}"
        )
    return record(lib.ggml_cast, [contiguous(x), to.ggml_type], x.shape)


@on_demand
def convert(x: Tensor, dtype: DType | str) -> Tensor:
    """Return the numbers in another dtype, as `cast`; those of a mask are truth values no more."""
    if not is_mask(need_tensor("cast", "x", x).node) or not is_dtype(dtype):
        return cast(x, dtype)
    if as_dtype(dtype) is not f32:
        return cast(x, dtype)
    numbers = record(lib.ggml_reshape_4d, [contiguous(x), *ne_of(x.shape)], x.shape)
    note_numbers(numbers.node)
    return numbers


@on_demand
def getitem(x: Tensor, index: Any) -> Tensor:
    """Return a part of a tensor by integers and slices of step one; as a view if possible.

    Raises:
        IndexError: an index is out of range or of another kind.
        ShapeError: the part would be empty.

    Source: ggml_view_4d.

    Example:
        >>> ones((4, 5, 6))[1:3, 0].shape
        (2, 6)
    """
    need_tensor("getitem", "x", x)
    parts = _spread(index, x)
    starts, extents, kept = [], [], []
    for axis, (part, n) in enumerate(zip(parts, x.shape, strict=True)):
        if isinstance(part, slice):
            try:
                first, stop, stride = part.indices(n)
            except (TypeError, ValueError) as error:  # a bound of another kind, a step of 0
                raise IndexError(
                    f"getitem: index must hold whole numbers; got {shown(part)} on axis {axis}"
                    f" ({error})"
                ) from None
            if stride != 1:
                raise IndexError(
                    f"getitem: index may have steps of 1 only; got {shown(part)} on axis {axis}"
                )
            if stop <= first:
                raise ShapeError(
                    f"getitem: index takes no element of x; got {part} on axis {axis} with extent"
                    f" {n}"
                )
            starts.append(first)
            extents.append(stop - first)
            kept.append(axis)
        else:
            if not -n <= part < n:
                raise IndexError(
                    f"getitem: index {shown(part)} is out of range for axis {axis} of {n}"
                )
            starts.append(int(part) % n)
            extents.append(1)
    if extents == list(x.shape) and len(kept) == x.ndim:
        return x
    if x.dtype.quantized and x.ndim and extents[-1] != x.shape[-1]:
        raise DTypeError(
            f"getitem: the last axis of {x.dtype.name} cannot be cut; cast x to f32 first"
        )
    # The gradient of a view is written with the view's strides: they must be those of x in order.
    x = contiguous(x)
    nb = [int(b) for b in x.ptr.nb]
    offset = sum(s * nb[x.ndim - 1 - a] for a, s in enumerate(starts))
    shape = tuple(extents[a] for a in kept)
    # The innermost axis of a view has no stride of its own; keep the last axis in, drop it after.
    axes = kept if kept and kept[-1] == x.ndim - 1 else [*kept, x.ndim - 1]
    viewed = tuple(extents[a] for a in axes)
    strides = [nb[x.ndim - 1 - a] for a in reversed(axes)]
    while len(strides) < MAX_DIMS:
        strides.append(strides[-1] * ne_of(viewed)[len(strides) - 1])
    view = record(lib.ggml_view_4d, [x, *ne_of(viewed), *strides[1:], offset], viewed)
    return view if viewed == shape else reshape(view, shape)


def _spread(index: Any, x: Tensor) -> list[Any]:
    parts = list(index) if isinstance(index, tuple) else [index]
    for part in parts:
        integer = isinstance(part, (int, np.integer)) and not isinstance(part, bool)
        if not (integer or isinstance(part, slice) or part is Ellipsis):
            raise IndexError(
                "getitem: index must be integers, slices and ...;"
                f" got {shown(part)}; lists take ops.get_rows"
            )
    dots = sum(p is Ellipsis for p in parts)
    if dots > 1:
        raise IndexError("getitem: index may hold one ... at most")
    if len(parts) - dots > x.ndim:
        raise IndexError(
            f"getitem: index must have at most {x.ndim} parts, x.shape={x.shape};"
            f" got {len(parts) - dots}"
        )
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
    fill = [slice(None)] * (x.ndim - (len(parts) - dots))
    return [*parts[:at], *fill, *parts[at + dots :]]


register("convert", convert)
