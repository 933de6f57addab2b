# SPDX-License-Identifier: MIT
"""Padding, rolling, resizing, diagonals and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.library import lib
from ..checks import choice, flag, whole
from ..errors import ShapeError, fitting, shown
from ..tensors.create import tensor
from ..tensors.record import record
from ..tensors.storage import MAX_DIMS, check_shape, check_size, ne_of, whole_numbers
from ..tensors.tensor import Tensor
from .operands import axis_of, contiguous, need_float, need_ndim, need_wholes
from .rows import get_rows
from .shape import reshape, transpose

__all__ = ["cumsum", "diag", "interpolate", "pad", "pad_reflect", "roll", "tri", "upscale"]

_TRIANGLES = {
    "lower": lib.GGML_TRI_TYPE_LOWER_DIAG,
    "strictly_lower": lib.GGML_TRI_TYPE_LOWER,
    "upper": lib.GGML_TRI_TYPE_UPPER_DIAG,
    "strictly_upper": lib.GGML_TRI_TYPE_UPPER,
}
_SCALE_MODES = {
    "nearest": lib.GGML_SCALE_MODE_NEAREST,
    "bilinear": lib.GGML_SCALE_MODE_BILINEAR,
    "bicubic": lib.GGML_SCALE_MODE_BICUBIC,
}


_WIDTH_END = 2**31  # ggml's widths are 32-bit


@fitting
def pad(x: Tensor, widths: Sequence[tuple[int, int]], mode: str = "zeros") -> Tensor:
    """Pad the last axes with zeros, or with the elements of their other end.

    Args:
        x: f32 tensor.
        widths: for each of the last axes, elements before and after it.
        mode: "zeros" or "circular".

    Raises:
        ShapeError: more widths than axes, a negative width, or one beyond a circular axis.
        ValueError: an unknown mode.

    Source: ggml_pad_ext, ggml_pad_ext_circular.

    Example:
        >>> pad(ones((2, 3)), [(0, 0), (1, 2)]).shape
        (2, 6)
    """
    need_float("pad", "x", x)
    choice("pad", "mode", mode, ("zeros", "circular"))
    pairs = _pairs(widths)
    if len(pairs) > x.ndim or not all(0 <= n < _WIDTH_END for pair in pairs for n in pair):
        raise ShapeError(
            f"pad: widths must be at most {x.ndim} pairs for x.shape={x.shape}, of numbers from 0"
            f" to {_WIDTH_END - 1}; got {shown(pairs)}"
        )
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if mode == "circular" and any(max(pair) > n for pair, n in zip(pairs, x.shape, strict=True)):
        raise ShapeError(f"pad: circular widths must not exceed the axes {x.shape}; got {pairs}")
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True))
    check_size("pad", shape, "with these widths, the shape")
    flat = [w for pair in reversed(pairs) for w in pair]
    flat += [0] * (2 * MAX_DIMS - len(flat))
    fn = lib.ggml_pad_ext if mode == "zeros" else lib.ggml_pad_ext_circular
    return record(fn, [contiguous(x), *flat], shape)


def _pairs(widths: Any) -> list[tuple[int, int]]:
    """Return the caller's pairs of whole numbers, whether they fit or not."""
    known = isinstance(widths, (list, tuple)) or (isinstance(widths, np.ndarray) and widths.ndim)
    pairs = []
    for pair in widths if known else [None]:
        numbers = whole_numbers(pair)
        if numbers is None or len(numbers) != 2:
            kind = TypeError if numbers is None else ShapeError
            raise kind(
                "pad: widths must be a list of pairs of whole numbers, (before, after) for each of"
                f" the last axes; got {shown(widths)}"
            )
        pairs.append((numbers[0], numbers[1]))
    return pairs


@fitting
def pad_reflect(x: Tensor, before: int, after: int) -> Tensor:
    """Pad the last axis with its mirror image, without repeating the edge.

    Args:
        x: f32 tensor.
        before, after: elements on each side, below C.

    Shape:
        x (..., C) -> (..., before + C + after)

    Raises:
        ShapeError: x is a scalar, or a width is not below C.
        ValueError: a width is negative or no whole number.

    Source: ggml_get_rows, whose gradient adds up what one element was copied to;
        numpy.pad(mode="reflect").

    Example:
        >>> pad_reflect(tensor([1.0, 2.0, 3.0]), 2, 1).tolist()
        [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """
    need_float("pad_reflect", "x", x)
    need_ndim("pad_reflect", "x", x, 1, 2, 3, 4)
    n = x.shape[-1]
    before = whole("pad_reflect", "before", before, 0, _WIDTH_END - 1)
    after = whole("pad_reflect", "after", after, 0, _WIDTH_END - 1)
    if max(before, after) >= n:
        raise ShapeError(
            f"pad_reflect: before and after must be below the last axis of x, {n}; got"
            f" before={before}, after={after}"
        )
    if not before and not after:
        return x
    lead, length = x.shape[:-1], before + n + after
    # The columns as rows of a table: ggml gathers rows, and its own reflection has no gradient.
    rows = math.prod(lead)
    places = np.pad(np.arange(n, dtype=np.int32), (before, after), "reflect")
    columns = get_rows(transpose(reshape(x, (rows, n))), tensor(places, "i32", x.device))
    return reshape(transpose(columns), (*lead, length))


@fitting
def roll(x: Tensor, shifts: Sequence[int]) -> Tensor:
    """Move elements along the last axes; what leaves at one end enters at the other.

    Args:
        x: f32 tensor.
        shifts: one for each of the last axes, positive towards its end.

    Raises:
        ShapeError: more shifts than axes.

    Source: ggml_roll.

    Example:
        >>> roll(tensor([1.0, 2.0, 3.0]), [1]).tolist()
        [3.0, 1.0, 2.0]
    """
    need_float("roll", "x", x)
    steps = need_wholes("roll", "shifts", shifts)
    if len(steps) > x.ndim:
        raise ShapeError(
            f"roll: shifts must be at most {x.ndim}, for x.shape={x.shape}; got {shown(steps)}"
        )
    extents = x.shape[x.ndim - len(steps) :]
    steps = [s % n for s, n in zip(steps, extents, strict=True)]
    args = [*reversed(steps), *([0] * (MAX_DIMS - len(steps)))]
    return record(lib.ggml_roll, [contiguous(x), *args], x.shape)


@fitting
def upscale(x: Tensor, factor: int, mode: str = "nearest") -> Tensor:
    """Enlarge images.

    Args:
        x: f32 images.
        factor: whole number above 1.
        mode: "nearest", "bilinear" or "bicubic".

    Shape:
        x (..., H, W) -> (..., H · factor, W · factor)

    Raises:
        ShapeError: x has fewer than two axes.
        ValueError: the factor is below 2, or the mode is unknown.

    Source: ggml_upscale.
    """
    need_float("upscale", "x", x)
    need_ndim("upscale", "x", x, 2, 3, 4)
    factor = whole("upscale", "factor", factor, 2, 2**15)
    choice("upscale", "mode", mode, _SCALE_MODES)
    shape = (*x.shape[:-2], x.shape[-2] * factor, x.shape[-1] * factor)
    check_size("upscale", shape, "with this factor, the shape")
    return record(lib.ggml_upscale, [contiguous(x), factor, _SCALE_MODES[mode]], shape)


@fitting
def interpolate(
    x: Tensor,
    size: tuple[int, int],
    mode: str = "bilinear",
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """Resize images to a size, larger or smaller.

    Args:
        x: f32 images.
        size: rows and columns.
        mode: "nearest", "bilinear" or "bicubic".
        align_corners: the corners' centres stay where they are; not for "nearest".
        antialias: smooth what shrinks; "bilinear" only.

    Shape:
        x (..., H, W) -> (..., *size)

    Raises:
        ShapeError: x has fewer than two axes, or the size is not two extents.
        ValueError: the mode is unknown, or does not go with an option.

    Source: ggml_interpolate; torch.nn.functional.interpolate.

    Example:
        >>> interpolate(ones((2, 3, 4)), (6, 2)).shape
        (2, 6, 2)
    """
    need_float("interpolate", "x", x)
    need_ndim("interpolate", "x", x, 2, 3, 4)
    new = check_shape("interpolate", size, "size")
    if len(new) != 2 or max(*new, *x.shape[-2:]) > 2**15:
        raise ShapeError(
            "interpolate: size and the last axes of x must be rows and columns up to 32768;"
            f" got size={new}, x.shape={x.shape}"
        )
    choice("interpolate", "mode", mode, _SCALE_MODES)
    align_corners = flag("interpolate", "align_corners", align_corners)
    antialias = flag("interpolate", "antialias", antialias)
    if (align_corners and mode == "nearest") or (antialias and mode != "bilinear"):
        raise ValueError(f"interpolate: mode {mode} has no such align_corners or antialias")
    if align_corners and antialias:
        raise ValueError("interpolate: align_corners and antialias exclude each other")
    flags = _SCALE_MODES[mode]
    flags |= lib.GGML_SCALE_FLAG_ALIGN_CORNERS if align_corners else 0
    flags |= lib.GGML_SCALE_FLAG_ANTIALIAS if antialias else 0
    lead = ne_of(x.shape)[2:]
    args = [contiguous(x), new[1], new[0], *lead, flags]
    return record(lib.ggml_interpolate, args, (*x.shape[:-2], *new))


@fitting
def diag(x: Tensor) -> Tensor:
    """Make a square matrix with x on its diagonal.

    Shape:
        x (C,) -> (C, C); x (..., 1, C) -> (..., C, C)

    Raises:
        ShapeError: x is of another shape.

    Source: ggml_diag.
    """
    need_float("diag", "x", x)
    if x.ndim == 0 or (x.ndim > 1 and x.shape[-2] != 1):
        raise ShapeError(f"diag: x must be (C,) or (..., 1, C); got {x.shape}")
    n = x.shape[-1]
    return record(lib.ggml_diag, [contiguous(x)], (*x.shape[:-2], n, n))


@fitting
def tri(x: Tensor, part: str = "lower") -> Tensor:
    """Take a triangle of square matrices; zeros elsewhere.

    Args:
        x: f32.
        part: "lower" and "upper" with the diagonal, "strictly_lower", "strictly_upper" without.

    Shape:
        x (..., C, C) -> (..., C, C)

    Raises:
        ShapeError: the matrices are not square.
        ValueError: an unknown part.

    Source: ggml_tri.
    """
    need_float("tri", "x", x)
    choice("tri", "part", part, _TRIANGLES)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"tri: x must hold square matrices; got {x.shape}")
    return record(lib.ggml_tri, [contiguous(x), _TRIANGLES[part]], x.shape)


@fitting
def cumsum(x: Tensor, dim: int = -1) -> Tensor:
    """Running sums along an axis. Source: ggml_cumsum."""
    need_float("cumsum", "x", x)
    need_ndim("cumsum", "x", x, 1, 2, 3, 4)
    axis = axis_of("cumsum", dim, x.ndim, "dim")
    if axis != x.ndim - 1:
        return transpose(cumsum(transpose(x, axis, -1)), axis, -1)
    return record(lib.ggml_cumsum, [contiguous(x)], x.shape)
