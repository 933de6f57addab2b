# SPDX-License-Identifier: MIT
"""Convolution of volumes (N, C, D, H, W), four axes at a time."""

from __future__ import annotations

import math
from typing import Any

from ..backend.library import lib
from ..checks import whole
from ..errors import ShapeError, fitting
from ..tensors.create import zeros
from ..tensors.record import record
from ..tensors.storage import check_size
from ..tensors.tensor import Tensor
from .convolution import each_axis, reach
from .matrices import mul_mat
from .operands import contiguous, need_float, need_ndim
from .shape import permute, reshape

__all__ = ["conv_3d", "im2col_3d"]


@fitting
def im2col_3d(
    x: Tensor,
    channels: int,
    kernel: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> Tensor:
    """Patches of volumes as rows, so that a convolution is one matmul.

    Args:
        x: f32 volumes, batch and channels in one axis.
        channels: C.
        kernel, stride, padding, dilation: one number, or one for depth, rows and columns.

    Shape:
        x (N·C, D, H, W) -> (N·OD, OH, OW, C·KD·KH·KW)

    Raises:
        ShapeError: the volumes are smaller than the kernel, or C does not divide the first axis.

    Source: ggml_im2col_3d.
    """
    return _im2col_3d("im2col_3d", x, channels, kernel, stride, padding, dilation)


def _im2col_3d(
    who: str, x: Tensor, channels: int, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Tensor:
    need_float(who, "x", x)
    need_ndim(who, "x", x, 4)
    channels = whole(who, "channels", channels, 1, 2**31 - 1)
    if x.shape[0] % channels:
        raise ShapeError(f"{who}: x must be (N·C, D, H, W), C={channels}; got {x.shape}")
    k, s = each_axis(who, "kernel", kernel, 1, 3), each_axis(who, "stride", stride, 1, 3)
    p, d = each_axis(who, "padding", padding, 0, 3), each_axis(who, "dilation", dilation, 1, 3)
    out = [reach(*axis) for axis in zip(x.shape[1:], k, s, p, d, strict=True)]
    if min(out) < 1:
        raise ShapeError(
            f"{who}: x must be at least as large as the kernel, or weight; got x.shape={x.shape},"
            f" kernel {k}, padding {p}, dilation {d}"
        )
    shape = (x.shape[0] // channels * out[0], out[1], out[2], channels * math.prod(k))
    check_size(who, shape, "with this padding, the shape of the patches")
    # ggml reads the kernel's shape off a tensor, and nothing else of it.
    shaped = zeros((channels, *k), device=x.device)
    args: list[Any] = [shaped, contiguous(x), channels, *s[::-1], *p[::-1], *d[::-1]]
    return record(lib.ggml_im2col_3d, [*args, lib.GGML_TYPE_F32], shape)


@fitting
def conv_3d(
    x: Tensor, weight: Tensor, channels: int, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    """Convolve volumes with a kernel, batch and channels in one axis as ggml has them.

    Args:
        x: f32 volumes.
        weight: f32 kernel.
        channels: C.
        stride, padding, dilation: one number, or one for depth, rows and columns.

    Shape:
        x (N·C, D, H, W), weight (O·C, KD, KH, KW) -> (N·O, OD, OH, OW)

    Raises:
        ShapeError: the extents do not fit.

    Source: ggml_im2col_3d, ggml_mul_mat.

    Example:
        >>> conv_3d(ones((2, 4, 4, 4)), ones((6, 3, 3, 3)), 2).shape
        (3, 2, 2, 2)
    """
    need_float("conv_3d", "weight", weight)
    need_ndim("conv_3d", "weight", weight, 4)
    patches = _im2col_3d("conv_3d", x, channels, weight.shape[1:], stride, padding, dilation)
    if weight.shape[0] % channels:
        raise ShapeError(
            f"conv_3d: weight must be (O·C, KD, KH, KW), C={channels}; got {weight.shape}"
        )
    n, out = x.shape[0] // channels, weight.shape[0] // channels
    depth, rows, columns, width = patches.shape
    depth //= n
    flat = mul_mat(reshape(weight, (out, width)), reshape(patches, (-1, width)))
    moved = permute(reshape(flat, (n, depth * rows * columns, out)), (0, 2, 1))
    return reshape(moved, (n * out, depth, rows, columns))
