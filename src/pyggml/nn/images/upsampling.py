# SPDX-License-Identifier: MIT
"""Layers that enlarge images: transposed convolution and interpolation."""

from __future__ import annotations

import math
from typing import Any

from ... import checks, ops
from ...errors import ShapeError
from ...ops.convolution import check_pair
from ...ops.operands import need_ndim
from ...tensors import Tensor
from .. import functional, init
from ..functional.images import check_margins
from ..layers import check_sizes, drawn
from ..module import Module, Parameter

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "Upsample"]


class ConvTranspose2d(Module):
    """Enlarge images by trained kernels: the gradient of a convolution by its input.

    Args:
        in_channels: C.
        out_channels: O.
        kernel_size: one number, or one for rows and one for columns.
        stride: one number; how many pixels of the output lie between those of the input.
        padding: rows and columns to cut off around the output, below the kernel.
        output_padding: rows and columns to keep of those that the padding cuts off at the end;
            below the stride.
        bias: learn a bias for each channel.
        init_weight: initialiser of the (C, O * KH * KW) weight; None is uniform within
            1 / sqrt(O * KH * KW), as is the bias.

    Shape:
        x (B, C, H, W) -> (B, O, OH, OW), OH = (H - 1) stride - 2 padding + KH + output_padding

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a size is out of range.
        ShapeError: nothing is left of an image.

    Source: ggml_conv_transpose_2d_p0; torch.nn.ConvTranspose2d.

    Example:
        >>> ConvTranspose2d(3, 8, 4, stride=2, padding=1)(ones((2, 3, 5, 5))).shape
        (2, 8, 10, 10)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: int = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        bias: bool = True,
        init_weight: init.Initializer | None = None,
    ) -> None:
        who = "ConvTranspose2d"
        in_channels, out_channels, self.stride = check_sizes(
            who, in_channels=in_channels, out_channels=out_channels, stride=stride
        )
        size = check_pair(who, "kernel_size", kernel_size, 1)
        self.padding, self.output_padding = check_margins(
            who, size, self.stride, padding, output_padding
        )
        learns_bias = checks.flag(who, "bias", bias)
        fan = out_channels * math.prod(size)
        bound = 1.0 / math.sqrt(fan)
        first = (out_channels,) if learns_bias else None
        weight, start = drawn(who, init_weight, bound, (in_channels, fan), first)
        self.weight = Parameter(weight.reshape(in_channels, out_channels, *size))
        self.bias = None if start is None else Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        """Return the enlarged images."""
        return functional.conv_transpose2d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding
        )


class ConvTranspose1d(Module):
    """Lengthen sequences by trained kernels: the gradient of a convolution by its input.

    Args:
        in_channels: C.
        out_channels: O.
        kernel_size: K.
        stride: how many elements of the output lie between those of the input.
        padding: elements to cut off at both ends, below the kernel.
        output_padding: elements to keep of those that the padding cuts off at the end; below the
            stride.
        bias: learn a bias for each channel.
        init_weight: initialiser of the (C, O * K) weight; None is uniform within 1 / sqrt(O * K),
            as is the bias.

    Shape:
        x (B, C, T) -> (B, O, OT), OT = (T - 1) stride - 2 padding + K + output_padding

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a size is out of range.
        ShapeError: nothing is left of a sequence.

    Source: ggml_conv_transpose_2d_p0; torch.nn.ConvTranspose1d.

    Example:
        >>> ConvTranspose1d(3, 8, 4, stride=2, padding=1)(ones((2, 3, 5))).shape
        (2, 8, 10)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
        init_weight: init.Initializer | None = None,
    ) -> None:
        who = "ConvTranspose1d"
        in_channels, out_channels, size, self.stride = check_sizes(
            who, in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size,
            stride=stride,
        )  # fmt: skip
        self.padding = checks.whole(who, "padding", padding, 0)
        self.output_padding = checks.whole(who, "output_padding", output_padding, 0)
        margins = (0, self.padding), (0, self.output_padding)
        check_margins(who, (1, size), self.stride, *margins)
        learns_bias = checks.flag(who, "bias", bias)
        bound = 1.0 / math.sqrt(out_channels * size)
        first = (out_channels,) if learns_bias else None
        weight, start = drawn(who, init_weight, bound, (in_channels, out_channels * size), first)
        self.weight = Parameter(weight.reshape(in_channels, out_channels, size))
        self.bias = None if start is None else Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        """Return the longer sequences."""
        return functional.conv_transpose1d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding
        )


class Upsample(Module):
    """Resize images to a size or by a factor.

    Args:
        size: rows and columns, or one number for both; None takes scale_factor.
        scale_factor: how much larger; rows and columns must become whole. None takes size.
        mode: "nearest", "bilinear" or "bicubic".
        align_corners: the corners' centres stay where they are; not for "nearest".

    Shape:
        x (B, C, H, W) -> (B, C, OH, OW)

    Raises:
        ValueError: both or none of size and scale_factor are given, or the mode is unknown.
        ShapeError: x is not (B, C, H, W), or the factor makes no whole rows and columns of it.

    Source: ggml_interpolate; torch.nn.Upsample.

    Example:
        >>> Upsample(scale_factor=2)(ones((1, 3, 4, 6))).shape
        (1, 3, 8, 12)
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: float | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        who = type(self).__name__
        if (size is None) == (scale_factor is None):
            raise ValueError(
                f"{who}: size or scale_factor must be given, and not both; got "
                f"size={size}, scale_factor={scale_factor}"
            )
        self.size = None if size is None else check_pair(who, "size", size, 1)
        self.scale_factor = (
            None
            if scale_factor is None
            else checks.number(who, "scale_factor", scale_factor, above=0.0)
        )
        self.mode = checks.choice(who, "mode", mode, ("nearest", "bilinear", "bicubic"))
        self.align_corners = checks.flag(who, "align_corners", align_corners)

    def forward(self, x: Tensor) -> Tensor:
        """Return the resized images."""
        need_ndim(type(self).__name__, "x", x, 4)
        size = self.size
        if size is None:
            assert self.scale_factor is not None
            wanted = [n * self.scale_factor for n in x.shape[2:]]
            if any(n < 1 or n != int(n) for n in wanted):
                raise ShapeError(
                    "Upsample: scale_factor must make whole rows and columns; got "
                    f"{self.scale_factor} for {x.shape[2:]}: give size"
                )
            size = (int(wanted[0]), int(wanted[1]))
        return ops.interpolate(x, size, self.mode, self.align_corners)
