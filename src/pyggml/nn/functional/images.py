# SPDX-License-Identifier: MIT
"""Images in other sizes, with the arguments of PyTorch's functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...checks import number, whole
from ...errors import ShapeError, composed
from ...ops.convolution import check_pair
from ...ops.operands import need_ndim, need_tensor
from ...tensors import Tensor

__all__ = ["check_margins", "conv_transpose1d", "conv_transpose2d", "interpolate"]


@composed
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: Any = 0,
    output_padding: Any = 0,
) -> Tensor:
    """Enlarge images by kernels: the gradient of a convolution by its input.

    Args:
        x: f32 images.
        weight: kernels.
        bias: of each channel of the result; None adds none.
        stride: how many pixels of the output lie between those of the input.
        padding: rows and columns to cut off around the output, below the kernel.
        output_padding: rows and columns to keep of those that the padding cuts off at the end;
            below the stride.

    Shape:
        x (B, C, H, W), weight (C, O, KH, KW), bias (O,) -> (B, O, OH, OW),
        OH = (H - 1) stride - 2 padding + KH + output_padding

    Raises:
        ValueError: a size is out of range.
        ShapeError: the shapes do not fit, or nothing is left of an image.

    Source: ggml_conv_transpose_2d_p0; torch.nn.functional.conv_transpose2d.

    Example:
        >>> conv_transpose2d(ones((2, 3, 5, 5)), ones((3, 8, 4, 4)), stride=2, padding=1).shape
        (2, 8, 10, 10)
    """
    who = "conv_transpose2d"
    need_ndim(who, "weight", need_tensor(who, "weight", weight), 4)
    stride = whole(who, "stride", stride, 1)
    margins = check_margins(who, weight.shape[2:], stride, padding, output_padding)
    y = ops.conv_transpose_2d(x, weight, stride)
    for axis, (cut, kept) in enumerate(zip(*margins, strict=True), 2):
        y = _trimmed(y, axis, cut, kept)
    if bias is None:
        return y
    if need_tensor(who, "bias", bias).shape != weight.shape[1:2]:
        raise ShapeError(f"{who}: bias must be {weight.shape[1:2]}; got {bias.shape}")
    return y + bias.reshape(-1, 1, 1)


@composed
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
) -> Tensor:
    """Lengthen sequences by kernels: the gradient of a convolution by its input.

    Args:
        x: f32 sequences.
        weight: kernels.
        bias: of each channel of the result; None adds none.
        stride, padding, output_padding: see `conv_transpose2d`.

    Shape:
        x (B, C, T), weight (C, O, K), bias (O,) -> (B, O, OT),
        OT = (T - 1) stride - 2 padding + K + output_padding

    Source: ggml_conv_transpose_2d_p0; torch.nn.functional.conv_transpose1d.

    Example:
        >>> conv_transpose1d(ones((2, 3, 5)), ones((3, 8, 4)), stride=2, padding=1).shape
        (2, 8, 10)
    """
    who = "conv_transpose1d"
    need_ndim(who, "x", x, 3)
    need_ndim(who, "weight", need_tensor(who, "weight", weight), 3)
    cut = whole(who, "padding", padding, 0)
    kept = whole(who, "output_padding", output_padding, 0)
    rows, kernels = ops.unsqueeze(x, 2), ops.unsqueeze(weight, 2)
    return ops.squeeze(conv_transpose2d(rows, kernels, bias, stride, (0, cut), (0, kept)), 2)


def check_margins(
    who: str, kernel: Sequence[int], stride: int, padding: Any, output_padding: Any
) -> tuple[Any, Any]:
    """Return padding and output padding of a transposed convolution as pairs, if they fit it."""
    cut = check_pair(who, "padding", padding, 0)
    kept = check_pair(who, "output_padding", output_padding, 0)
    if any(p >= k for p, k in zip(cut, kernel, strict=True)):
        raise ValueError(f"{who}: padding must be below the kernel; got {cut}, {tuple(kernel)}")
    if any(p >= stride for p in kept):
        raise ValueError(f"{who}: output_padding must be below the stride; got {kept}, {stride}")
    return cut, kept


def _trimmed(y: Tensor, axis: int, cut: int, kept: int) -> Tensor:
    """Cut rows or columns off at both ends, but for some at the end, which may be new zeros."""
    size = y.shape[axis] - 2 * cut + kept
    if size < 1:
        raise ShapeError(
            f"conv_transpose2d: the output must have a row and a column; got {y.shape[2:]} before "
            f"padding={cut} is cut off: take less padding, or larger images"
        )
    if kept > cut:
        y = ops.pad(y, [(0, kept - cut if each == axis else 0) for each in range(4)])
    if not cut:
        return y
    window = [slice(None)] * 4
    window[axis] = slice(cut, cut + size)
    return y[tuple(window)]


@composed
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *,
    antialias: bool = False,
) -> Tensor:
    """Resize images to a size or by a factor.

    Args:
        x: f32 images.
        size: rows and columns, or one number for both; None takes scale_factor.
        scale_factor: of rows and columns, which must become whole; None takes size.
        mode: "nearest", "bilinear" or "bicubic".
        align_corners: the corners' centres stay where they are; not for "nearest". None is False.
        antialias: smooth what shrinks; "bilinear" only.

    Shape:
        x (B, C, H, W) -> (B, C, OH, OW)

    Raises:
        ValueError: both or none of size and scale_factor are given, or the mode is unknown or does
            not go with an option.
        ShapeError: x is not (B, C, H, W), or the factor makes no whole rows and columns of it.

    Source: torch.nn.functional.interpolate; ggml_interpolate.

    Example:
        >>> interpolate(ones((1, 3, 4, 6)), scale_factor=2).shape
        (1, 3, 8, 12)
    """
    need_ndim("interpolate", "x", x, 4)
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "interpolate: size or scale_factor must be given, and not both; got"
            f" size={size}, scale_factor={scale_factor}"
        )
    if scale_factor is not None:
        size = _scaled(x, scale_factor)
    both: Any = size if isinstance(size, (list, tuple)) else (size, size)
    return ops.interpolate(x, both, mode, align_corners or False, antialias)


def _scaled(x: Tensor, scale_factor: Any) -> tuple[int, ...]:
    """Return rows and columns times their factors."""
    given = scale_factor if isinstance(scale_factor, (list, tuple)) else (scale_factor,) * 2
    if len(given) != 2:
        raise ShapeError(f"interpolate: scale_factor must be one or two numbers; got {given}")
    factors = [number("interpolate", "scale_factor", f, above=0.0) for f in given]
    wanted = [n * f for n, f in zip(x.shape[2:], factors, strict=True)]
    if any(n < 1 or n != math.floor(n) for n in wanted):
        raise ShapeError(
            f"interpolate: scale_factor must make whole rows and columns; got {scale_factor} for"
            f" {x.shape[2:]}: give size"
        )
    return tuple(map(int, wanted))
