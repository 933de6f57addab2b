# SPDX-License-Identifier: MIT
"""Checks shared by the ops: each mirrors an assert of ggml, and runs before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._lib import lib
from ..errors import DTypeError, ShapeError
from ..tensor import MAX_DIMS, Tensor, ne_of, record, tensor

__all__ = [
    "as_tensor",
    "axis_of",
    "broadcast",
    "contiguous",
    "is_scalar",
    "need_dtype",
    "need_float",
    "need_ndim",
    "need_tensor",
]


def need_tensor(who: str, name: str, x: Any) -> Tensor:
    """Refuse what is not a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{who}: {name} must be a Tensor; got {type(x).__name__}; use pg.tensor(x)")
    return x


def is_scalar(x: Any) -> bool:
    """Whether `x` is a plain number."""
    return isinstance(x, (int, float, np.number)) and not isinstance(x, bool)


def as_tensor(who: str, x: Any, like: Tensor) -> Tensor:
    """Take arrays and numbers where a tensor is meant, on the device of `like`."""
    if isinstance(x, Tensor):
        return x
    if is_scalar(x) or isinstance(x, (np.ndarray, list, tuple)):
        return tensor(np.asarray(x, np.float32), "f32", like.device)
    raise TypeError(f"{who}: expected a Tensor, an array or a number; got {type(x).__name__}")


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


def axis_of(who: str, axis: Any, ndim: int) -> int:
    """Count an axis from the front."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ShapeError(f"{who}: axis must be an integer; got {axis!r}")
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{who}: axis must be from {-ndim} to {ndim - 1}; got {axis}")
    return int(axis) % ndim


def broadcast(who: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's broadcast shape."""
    try:
        shape = np.broadcast_shapes(*[tuple(s) for s in shapes])
    except ValueError:
        listed = " and ".join(str(tuple(s)) for s in shapes)
        raise ShapeError(
            f"{who}: shapes must broadcast (equal, or one, counted from the last axis);"
            f" got {listed}"
        ) from None
    if len(shape) > MAX_DIMS:
        raise ShapeError(f"{who}: ggml has at most {MAX_DIMS} axes; got {shape}")
    return shape


def _strides_in_order(x: Tensor) -> bool:
    """Whether every stride is the one of a fresh tensor, those of extents of one included."""
    nb, ne = list(x.ptr.nb), list(x.ptr.ne)
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
