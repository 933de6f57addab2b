# SPDX-License-Identifier: MIT
"""Checks shared by the ops: each mirrors an assert of ggml, and runs before it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from operator import index
from typing import Any

import numpy as np

from ..backend.headers import memory_of
from ..backend.library import ffi, lib
from ..errors import DTypeError, ShapeError, shown
from ..tensors.create import tensor
from ..tensors.record import record
from ..tensors.storage import MAX_DIMS, check_shape, ne_of, whole_numbers
from ..tensors.tensor import Tensor

__all__ = [
    "apart",
    "as_tensor",
    "axis_of",
    "broadcast",
    "contiguous",
    "is_scalar",
    "need_choice",
    "need_dtype",
    "need_flag",
    "need_float",
    "need_ndim",
    "need_number",
    "need_tensor",
    "need_whole",
    "need_wholes",
    "overlap",
]


def need_tensor(who: str, name: str, x: Any) -> Tensor:
    """Refuse what is not a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{who}: {name} must be a Tensor; got {type(x).__name__}; use pg.tensor(x)")
    return x


def is_scalar(x: Any) -> bool:
    """Whether `x` is a plain real number."""
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def need_number(
    who: str, name: str, x: Any, least: float = -math.inf, finite: bool = False
) -> float:
    """Refuse what is not a real number, one below `least`, and, if so wished, NaN and infinity."""
    if not is_scalar(x):
        cure = f"; use {name}.item()" if isinstance(x, Tensor) else ""
        raise TypeError(f"{who}: {name} must be a number; got {shown(x)}{cure}")
    try:
        number = float(x)
    except OverflowError:
        raise ValueError(f"{who}: {name} must be within a float's range; got {shown(x)}") from None
    if number < least or (finite and not math.isfinite(number)):
        kind = "finite" if finite else "a number"
        bound = "" if least == -math.inf else f" and at least {least:g}"
        raise ValueError(f"{who}: {name} must be {kind}{bound}; got {shown(x)}")
    return number


def need_whole(who: str, name: str, x: Any, least: int, most: int) -> int:
    """Refuse what is not a whole number from `least` to `most`."""
    try:
        whole = None if isinstance(x, (bool, np.bool_)) else index(x)
    except TypeError:
        whole = None
    if whole is None or not least <= whole <= most:
        raise ValueError(
            f"{who}: {name} must be a whole number from {least} to {most}; got {shown(x)}"
        )
    return whole


def need_wholes(who: str, name: str, x: Any) -> list[int]:
    """Refuse what is not a sequence of whole numbers."""
    numbers = whole_numbers(x)
    if numbers is None:
        raise ShapeError(f"{who}: {name} must be a list of whole numbers; got {shown(x)}")
    return numbers


def need_choice(who: str, name: str, x: Any, known: Collection[str]) -> str:
    """Refuse what is not one of the names."""
    if not isinstance(x, str) or x not in known:
        raise ValueError(f"{who}: {name} must be one of {', '.join(known)}; got {shown(x)}")
    return x


def need_flag(who: str, name: str, x: Any) -> bool:
    """Refuse what is neither True nor False."""
    if not isinstance(x, (bool, np.bool_)):
        raise TypeError(f"{who}: {name} must be True or False; got {shown(x)}")
    return bool(x)


def as_tensor(who: str, name: str, x: Any, like: Tensor) -> Tensor:
    """Take arrays and numbers where a tensor is meant, on the device of `like`."""
    if isinstance(x, Tensor):
        return x
    if is_scalar(x) or isinstance(x, (np.ndarray, list, tuple)):
        return tensor(_real_numbers(who, name, x), "f32", like.device)
    raise TypeError(f"{who}: {name}: expected a Tensor, an array or a number; got {shown(x)}")


def _real_numbers(who: str, name: str, x: Any) -> np.ndarray:
    """An array of f32; None, masked elements and integers beyond 64 bits are not taken for any."""
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
    return array.astype(np.float32)


def need_dtype(who: str, name: str, x: Tensor, *allowed: str) -> None:
    """Refuse other dtypes than those named."""
    if x.dtype.name not in allowed:
        raise DTypeError(
            f"{who}: {name} must be {' or '.join(allowed)}; got {x.dtype.name};"
            f" convert with {name}.astype({allowed[0]!r})"
        )


def need_float(who: str, name: str, x: Any) -> Tensor:
    """Refuse what is not an f32 tensor."""
    need_dtype(who, name, need_tensor(who, name, x), "f32")
    return x  # type: ignore[no-any-return]


def need_ndim(who: str, name: str, x: Tensor, *allowed: int) -> None:
    """Refuse other numbers of axes than those named."""
    if x.ndim not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ShapeError(f"{who}: {name} must have {wanted} axes; got {name}.shape={x.shape}")


def axis_of(who: str, axis: Any, ndim: int, name: str = "axis", of: str = "x") -> int:
    """Count an axis from the front."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ShapeError(f"{who}: {name} must be an integer; got {shown(axis)}")
    if ndim == 0:
        raise ShapeError(f"{who}: {of} must have an axis; got a scalar and {name}={shown(axis)}")
    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"{who}: {name} must be from {-ndim} to {ndim - 1} for {ndim} axes of {of};"
            f" got {shown(axis)}"
        )
    return int(axis) % ndim


def broadcast(who: str, **shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's broadcast shape of the arguments by their names."""
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


def _strides_in_order(x: Tensor) -> bool:
    """Whether every stride is the one of a fresh tensor, those of extents of one included."""
    nb, ne = ffi.unpack(x.ptr.nb, MAX_DIMS), ffi.unpack(x.ptr.ne, MAX_DIMS)
    expected = x.dtype.type_size * (ne[0] // x.dtype.block_size)
    for axis in range(1, len(ne)):
        if nb[axis] != expected:
            return False
        expected *= ne[axis]
    return int(nb[0]) == x.dtype.type_size


def contiguous(x: Tensor) -> Tensor:
    """`x` itself when its elements are in order in memory, else an ordered copy."""
    if _strides_in_order(x):
        return x
    if lib.ggml_is_contiguous(x.ptr):
        # A permuted axis of extent one keeps a stride that does not matter, but that ggml's row
        # loops use: a reshape to the same shape sets it right, without a copy.
        return record(lib.ggml_reshape_4d, [x, *ne_of(x.shape)], x.shape)
    return record(lib.ggml_cont, [x], x.shape)


def _span(x: Tensor) -> tuple[int, int, int]:
    """The buffer or tensor whose memory `x` names, and its first and last byte there."""
    start, size = int(x.ptr.view_offs), int(lib.ggml_nbytes(x.ptr))
    buffer, place = memory_of(x.ptr)
    if not buffer:  # no memory before a graph is planned
        return place, start, start + size
    return buffer, place + start, place + start + size


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors may share memory: views of one, or one tensor twice."""
    (root_a, start_a, end_a), (root_b, start_b, end_b) = _span(a), _span(b)
    return root_a == root_b and start_a < end_b and start_b < end_a


def apart(x: Tensor, *written: Tensor) -> Tensor:
    """`x`, or an ordered copy where writing to `written` in place would change it meanwhile."""
    if not any(overlap(x, w) for w in written):
        return x
    return record(lib.ggml_cont, [x], x.shape)
