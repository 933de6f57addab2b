# SPDX-License-Identifier: MIT
"""Ops on a part of a tensor: adding to it, replacing it, masking it, cutting it into windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backend.library import lib
from ..checks import number, whole
from ..errors import ShapeError, fitting, shown
from ..tensors.record import record
from ..tensors.storage import MAX_DIMS, check_shape, check_size, ne_of
from ..tensors.tensor import Tensor
from .operands import contiguous, need_float, need_ndim, need_wholes

__all__ = [
    "acc",
    "add1",
    "diag_mask_inf",
    "diag_mask_zero",
    "fill",
    "repeat_back",
    "set",
    "win_part",
    "win_unpart",
]

# ggml keeps the offset and the strides of the part in 32-bit integers.
_OFFSET_END = 2**30
_STRIDE_END = 2**31


def _place(who: str, fn: Callable[..., Any], x: Tensor, part: Tensor, start: Any) -> Tensor:
    need_float(who, "x", x)
    need_float(who, "part", part)
    at = need_wholes(who, "start", start)
    fits = (
        x.ndim > 0
        and len(at) == x.ndim == part.ndim
        and all(i >= 0 and i + n <= m for i, n, m in zip(at, part.shape, x.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            f"{who}: part must lie within x from start on; got x.shape={x.shape},"
            f" part.shape={part.shape}, start={shown(tuple(at))}"
        )
    x = contiguous(x)
    nb = [int(b) for b in x.ptr.nb]
    offset = sum(i * nb[x.ndim - 1 - axis] for axis, i in enumerate(at))
    if offset >= _OFFSET_END or max(nb[1:]) >= _STRIDE_END:
        raise ShapeError(f"{who}: x is too large for ggml's 32-bit offsets; got {x.shape}")
    return record(fn, [x, contiguous(part), *nb[1:], offset], x.shape)


@fitting
def acc(x: Tensor, part: Tensor, start: Sequence[int]) -> Tensor:
    """Return a copy of x with `part` added from element `start` on.

    Args:
        x: f32.
        part: f32.
        start: one index per axis.

    Shape:
        x and part with equal numbers of axes -> as x

    Raises:
        ShapeError: the part does not lie within x.

    Source: ggml_acc.

    Example:
        >>> acc(zeros((4,)), ones((2,)), (1,)).tolist()
        [0.0, 1.0, 1.0, 0.0]
    """
    return _place("acc", lib.ggml_acc, x, part, start)


@fitting
def set(x: Tensor, part: Tensor, start: Sequence[int]) -> Tensor:
    """Return a copy of x with `part` in place of its elements from `start` on; see `acc`.

    Source: ggml_set.
    """
    return _place("set", lib.ggml_set, x, part, start)


@fitting
def add1(x: Tensor, b: Tensor) -> Tensor:
    """x plus one number that is a tensor.

    Shape:
        x any, b of one element -> as x

    Raises:
        ShapeError: b has more than one element.

    Source: ggml_add1.
    """
    need_float("add1", "x", x)
    need_float("add1", "b", b)
    if b.numel() != 1:
        raise ShapeError(f"add1: b must have one element; got b.shape={b.shape}; use +")
    return record(lib.ggml_add1, [contiguous(x), contiguous(b)], x.shape)


def _diag_mask(who: str, fn: Callable[..., Any], x: Tensor, n_past: int) -> Tensor:
    need_float(who, "x", x)
    need_ndim(who, "x", x, 2, 3, 4)
    n_past = whole(who, "n_past", n_past, 0, 2**30 - 1)
    if max(x.numel() // x.shape[-1], x.shape[-1]) >= 2**30:
        raise ShapeError(f"{who}: x is too large for ggml's 32-bit counts; got {x.shape}")
    return record(fn, [contiguous(x), n_past], x.shape)


@fitting
def diag_mask_inf(x: Tensor, n_past: int = 0) -> Tensor:
    """x with -inf in the columns after n_past + row.

    Shape:
        x (..., T, S) -> as x

    Raises:
        ValueError: n_past is negative.

    Source: ggml_diag_mask_inf.
    """
    return _diag_mask("diag_mask_inf", lib.ggml_diag_mask_inf, x, n_past)


@fitting
def diag_mask_zero(x: Tensor, n_past: int = 0) -> Tensor:
    """x with 0 in the columns after n_past + row; see `diag_mask_inf`.

    Source: ggml_diag_mask_zero.
    """
    return _diag_mask("diag_mask_zero", lib.ggml_diag_mask_zero, x, n_past)


@fitting
def fill(x: Tensor, value: float) -> Tensor:
    """Make a tensor like x with one value everywhere; no gradient flows. Source: ggml_fill."""
    need_float("fill", "x", x)
    return record(
        lib.ggml_fill, [contiguous(x), number("fill", "value", value, finite=False)], x.shape
    )


@fitting
def repeat_back(x: Tensor, shape: Any) -> Tensor:
    """Sum the tiles that x consists of: the gradient of `repeat`.

    Args:
        x: f32.
        shape: of a tile; each extent must divide x's.

    Raises:
        ShapeError: an extent does not divide.

    Source: ggml_repeat_back.

    Example:
        >>> repeat_back(ones((4, 6)), (2, 3)).tolist()
        [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    """
    need_float("repeat_back", "x", x)
    new = check_shape("repeat_back", shape)
    if len(new) > x.ndim or any(m % n for n, m in zip(ne_of(new), ne_of(x.shape), strict=True)):
        raise ShapeError(f"repeat_back: shape {new} must divide x.shape={x.shape} in every extent")
    return record(_repeat_back, [contiguous(x), ne_of(new)], new)


def _repeat_back(ctx: Any, x: Any, ne: Any) -> Any:
    # ggml reads the tile's shape off a tensor, and nothing else of it.
    return lib.ggml_repeat_back(ctx, x, lib.ggml_new_tensor(ctx, lib.GGML_TYPE_F32, MAX_DIMS, ne))


@fitting
def win_part(x: Tensor, w: int) -> Tensor:
    """Cut a picture into windows of w × w, padded by zeros at its end.

    Shape:
        x (H, W, C) -> (windows, w, w, C)

    Raises:
        ShapeError: x has another number of axes.
        ValueError: w is not a whole number from 1.

    Source: ggml_win_part; the windows of Segment Anything.
    """
    need_float("win_part", "x", x)
    need_ndim("win_part", "x", x, 3)
    rows, columns, channels = x.shape
    w = whole("win_part", "w", w, 1, 2**15)
    n = -(-rows // w) * -(-columns // w)
    check_size("win_part", (n, w, w, channels), "with this w, the shape")
    return record(lib.ggml_win_part, [contiguous(x), w], (n, w, w, channels))


@fitting
def win_unpart(x: Tensor, height: int, width: int) -> Tensor:
    """Put the windows of `win_part` together again, without its padding.

    Shape:
        x (windows, w, w, C) -> (height, width, C)

    Raises:
        ShapeError: the windows are not square, or do not make such a picture.

    Source: ggml_win_unpart.
    """
    need_float("win_unpart", "x", x)
    need_ndim("win_unpart", "x", x, 4)
    height = whole("win_unpart", "height", height, 1, 2**31 - 1)
    width = whole("win_unpart", "width", width, 1, 2**31 - 1)
    n, w, other, channels = x.shape
    if w != other or n != -(-height // w) * -(-width // w):
        raise ShapeError(
            f"win_unpart: x must be (windows, w, w, C) of a picture of height {height} and width"
            f" {width};"
            f" got {x.shape}"
        )
    args = [contiguous(x), width, height, w]
    return record(lib.ggml_win_unpart, args, (height, width, channels))
