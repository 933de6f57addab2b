# SPDX-License-Identifier: MIT
"""Checks of an op's operands, each before an assert of ggml; and operands in order in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.dtypes import f32
from ..backend.headers import memory_of
from ..backend.library import ffi, lib
from ..checks import instance, is_real, whole
from ..errors import DTypeError, ShapeError, shown
from ..tensors.create import tensor
from ..tensors.record import record
from ..tensors.storage import MAX_DIMS, check_shape, ne_of, whole_numbers
from ..tensors.tensor import Tensor
from ..tensors.truth import is_mask

__all__ = [
    "apart",
    "as_tensor",
    "axis_of",
    "broadcast",
    "contiguous",
    "conversion",
    "copied",
    "has_truth",
    "need_dtype",
    "need_float",
    "need_ndim",
    "need_tensor",
    "need_wholes",
    "overlap",
    "shape_of",
]


def need_tensor(who: str, name: str, x: Any) -> Tensor:
    """Return a tensor; raise for anything else."""
    if isinstance(x, Tensor):
        return x
    return instance(who, name, x, Tensor, f"use pg.tensor({name})")


def need_wholes(who: str, name: str, x: Any) -> list[int]:
    """Return a sequence of whole numbers as a list; raise for anything else."""
    numbers = whole_numbers(x)
    if numbers is None:
        raise TypeError(f"{who}: {name} must be a list of whole numbers; got {shown(x)}")
    return numbers


def as_tensor(who: str, name: str, x: Any, like: Tensor) -> Tensor:
    """Return a tensor, or make one of an array or a number on the device of `like`."""
    if isinstance(x, Tensor):
        return x
    if is_real(x) or isinstance(x, (bool, np.bool_, np.ndarray, list, tuple)):
        array = _real_numbers(who, name, x)
        return tensor(array, None if array.dtype == bool else "f32", like.device)
    got = shown(x)
    if x is None:
        got = "None, as a tensor's grad is before loss.backward(), and where it is no parameter"
    elif hasattr(x, "__array__"):  # such as PyTorch's
        kind = type(x)
        got = f"a {kind.__module__.partition('.')[0]}.{kind.__name__}: use pg.tensor({name})"
    raise TypeError(f"{who}: {name}: expected a Tensor, an array or a number; got {got}")


def _real_numbers(who: str, name: str, x: Any) -> np.ndarray:
    """Return an array of f32 or booleans; raise for None, gaps and integers beyond 64 bits."""
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"{who}: {name}: the lists are ragged ({error})") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{who}: {name} must hold real numbers; got {shown(x)}")
    if hasattr(x, "mask"):
        raise TypeError(
            f"{who}: {name} must have no gaps; got a masked array: use {name}.filled(0)"
        )
    check_shape(f"{who}: {name}", array.shape)
    return array if array.dtype == bool else array.astype(np.float32)


def has_truth(x: Any) -> bool:
    """Return True for a mask, for True and False, and for an array of booleans."""
    if isinstance(x, Tensor):
        return is_mask(x.node)
    return isinstance(x, (bool, np.bool_)) or (isinstance(x, np.ndarray) and x.dtype == bool)


def need_dtype(who: str, name: str, x: Any, *allowed: str) -> None:
    """Raise for what is no tensor, and for other dtypes than those named."""
    if not isinstance(x, Tensor) or x.dtype.name not in allowed:
        need_tensor(who, name, x)
        raise DTypeError(
            f"{who}: {name} must be {' or '.join(allowed)}; got {x.dtype.name};"
            f" convert with {conversion(name, x, allowed[0])}"
        )


def conversion(name: str, x: Tensor, dtype: str) -> str:
    """Return what makes a tensor of another dtype; ggml computes with few of them."""
    if x.dtype.quantized or x.dtype.name in ("f32", "f16", "bf16", "i32"):
        return f"{name}.astype({dtype!r})"
    if dtype == "i32":
        return f"pg.tensor({name}.numpy().astype('i4'))"
    return f"pg.tensor({name}.numpy(), dtype={dtype!r})"


def need_float(who: str, name: str, x: Any) -> Tensor:
    """Return an f32 tensor; raise for anything else."""
    if not isinstance(x, Tensor) or x.dtype is not f32:
        need_dtype(who, name, x, "f32")
    return x  # type: ignore[no-any-return]


def need_ndim(who: str, name: str, x: Any, *allowed: int) -> None:
    """Raise for what is no tensor, and for other numbers of axes than those named."""
    if need_tensor(who, name, x).ndim not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ShapeError(f"{who}: {name} must have {wanted} axes; got {name}.shape={x.shape}")


def axis_of(who: str, axis: Any, ndim: int, name: str = "axis", of: str = "x") -> int:
    """Return an axis counted from the front."""
    number: int = whole(who, name, axis)
    if ndim == 0:
        raise ShapeError(f"{who}: {of} must have an axis; got a scalar and {name}={number}")
    if not -ndim <= number < ndim:
        raise ShapeError(
            f"{who}: {name} must be from {-ndim} to {ndim - 1} for {ndim} axes of {of};"
            f" got {number}"
        )
    return number % ndim


def broadcast(who: str, **shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that NumPy broadcasts the arguments to."""
    if len(shapes) == 2:
        a, b = shapes.values()
        if len(a) < len(b):
            a, b = b, a
        if len(a) <= MAX_DIMS and a[len(a) - len(b) :] == b:  # equal, or a bias
            return tuple(a)
    try:
        shape = np.broadcast_shapes(*[tuple(s) for s in shapes.values()])
    except ValueError:
        listed = " and ".join(f"{name} {shown(tuple(s))}" for name, s in shapes.items())
        raise ShapeError(
            f"{who}: shapes must broadcast (equal, or one, counted from the last axis);"
            f" got {listed}"
        ) from None
    if len(shape) > MAX_DIMS:
        raise ShapeError(f"{who}: ggml has at most {MAX_DIMS} axes; got {shape}")
    return shape


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, and that of a scalar for a number."""
    return x.shape if isinstance(x, Tensor) else ()


def _strides_in_order(x: Tensor) -> bool:
    """Return True if every stride is that of a fresh tensor, also of extents of one."""
    if not x.ptr.view_src:  # ggml made it as it lies
        return True
    nb, ne = ffi.unpack(x.ptr.nb, MAX_DIMS), ffi.unpack(x.ptr.ne, MAX_DIMS)
    expected = x.dtype.type_size * (ne[0] // x.dtype.block_size)
    for axis in range(1, len(ne)):
        if nb[axis] != expected:
            return False
        expected *= ne[axis]
    return int(nb[0]) == x.dtype.type_size


def contiguous(x: Tensor) -> Tensor:
    """Return `x` when its elements are in order in memory, else an ordered copy."""
    if _strides_in_order(x):
        return x
    if lib.ggml_is_contiguous(x.ptr):
        # A permuted axis of extent one keeps a stride that does not matter, but that ggml's row
        # loops use: a reshape to the same shape sets it right, without a copy.
        return record(lib.ggml_reshape_4d, [x, *ne_of(x.shape)], x.shape)
    return record(lib.ggml_cont, [x], x.shape)


def copied(x: Tensor) -> Tensor:
    """Return an ordered copy; of an op that leaves a stored x as it is, but is no view of it."""
    return record(lib.ggml_cont, [x], x.shape)


def _span(x: Tensor) -> tuple[int, int, int]:
    """Return the buffer or tensor whose memory `x` names, and its first and last byte there."""
    start, size = int(x.ptr.view_offs), int(lib.ggml_nbytes(x.ptr))
    buffer, place = memory_of(x.ptr)
    if not buffer:  # no memory before a graph is planned
        return place, start, start + size
    return buffer, place + start, place + start + size


def overlap(a: Tensor, b: Tensor) -> bool:
    """Return True if two tensors may share memory: views of one, or one tensor twice."""
    (root_a, start_a, end_a), (root_b, start_b, end_b) = _span(a), _span(b)
    return root_a == root_b and start_a < end_b and start_b < end_a


def apart(x: Tensor, *written: Tensor) -> Tensor:
    """Return `x`, or a copy if writing `written` in place would change `x`."""
    if not any(overlap(x, w) for w in written):
        return x
    return record(lib.ggml_cont, [x], x.shape)
