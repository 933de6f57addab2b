# SPDX-License-Identifier: MIT
"""Layers of image models: convolution and pooling."""

from __future__ import annotations

import math
from typing import Any

from ... import checks, ops
from ...errors import ShapeError
from ...ops.convolution import check_padding, check_pair
from ...ops.operands import need_tensor
from ...tensors import Tensor
from .. import functional, init
from ..functional.convolution import check_groups, convolved
from ..layers import check_sizes, drawn
from ..module import Module, Parameter

__all__ = ["AvgPool2d", "Conv1d", "Conv2d", "Flatten", "GlobalAvgPool2d", "MaxPool2d"]


class Conv2d(Module):
    """Convolve images with trained kernels (without flipping them, as networks do).

    Args:
        in_channels: C.
        out_channels: O.
        kernel_size: one number, or one for rows and one for columns.
        stride: likewise.
        padding: zeros around the image, likewise; "valid" for none, "same" to keep the size.
        dilation: distance of the kernel's elements, likewise.
        groups: parts of the channels, each with kernels of its own; it divides C and O. C of them
            make a depthwise convolution.
        bias: learn a bias for each channel.
        init_weight: initialiser of the (O, C / groups * KH * KW) weight; None is uniform within
            1 / sqrt(C / groups * KH * KW), as is the bias.

    Shape:
        x (B, C, H, W) -> (B, O, OH, OW), OH = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a size is out of range, or groups does not divide C and O.

    Source: ggml_im2col, ggml_mul_mat; depthwise ggml_conv_2d_dw_direct.

    Example:
        >>> Conv2d(3, 8, 3, padding=1)(ones((2, 3, 5, 5))).shape
        (2, 8, 5, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        init_weight: init.Initializer | None = None,
    ) -> None:
        in_channels, out_channels, groups = check_sizes(
            "Conv2d", in_channels=in_channels, out_channels=out_channels, groups=groups
        )
        learns_bias = checks.flag("Conv2d", "bias", bias)
        self.groups = check_groups("Conv2d", groups, in_channels, out_channels)
        self.stride = check_pair("Conv2d", "stride", stride, 1)
        self.dilation = check_pair("Conv2d", "dilation", dilation, 1)
        size = check_pair("Conv2d", "kernel_size", kernel_size, 1)
        padding = check_padding("Conv2d", padding, size, stride, dilation)
        self.padding = check_pair("Conv2d", "padding", padding, 0)
        fan_in = in_channels // groups * math.prod(size)
        bound = 1.0 / math.sqrt(fan_in)
        first = (out_channels,) if learns_bias else None
        weight, start = drawn("Conv2d", init_weight, bound, (out_channels, fan_in), first)
        self.weight = Parameter(weight.reshape(out_channels, -1, *size))
        self.bias = None if start is None else Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolved images."""
        options = self.stride, self.padding, self.dilation
        y = convolved("Conv2d", x, self.weight, *options, self.groups)
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)


class Conv1d(Module):
    """Convolve sequences with trained kernels.

    Args:
        in_channels: C.
        out_channels: O.
        kernel_size: K.
        stride: how far the kernel moves.
        padding: zeros at both ends; "valid" for none, "same" to keep T.
        dilation: distance of the kernel's elements.
        groups: parts of the channels, each with kernels of its own; it divides C and O.
        bias: learn a bias for each channel.
        init_weight: initialiser of the (O, C / groups * K) weight; None is uniform within
            1 / sqrt(C / groups * K), as is the bias.

    Shape:
        x (B, C, T) -> (B, O, OT), OT = (T + 2 padding - dilation (K - 1) - 1) / stride + 1

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a size is out of range, or groups does not divide C and O.

    Source: ggml_im2col, ggml_mul_mat; torch.nn.Conv1d.

    Example:
        >>> Conv1d(3, 8, 3, padding=1)(ones((2, 3, 5))).shape
        (2, 8, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        init_weight: init.Initializer | None = None,
    ) -> None:
        in_channels, out_channels, kernel_size, self.stride, self.dilation = check_sizes(
            "Conv1d", in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size,
            stride=stride, dilation=dilation,
        )  # fmt: skip
        self.groups = check_groups("Conv1d", groups, in_channels, out_channels)
        padding = check_padding("Conv1d", padding, (kernel_size,), stride, dilation)
        self.padding = checks.whole("Conv1d", "padding", padding, 0)
        learns_bias = checks.flag("Conv1d", "bias", bias)
        fan_in = in_channels // groups * kernel_size
        bound = 1.0 / math.sqrt(fan_in)
        first = (out_channels,) if learns_bias else None
        weight, start = drawn("Conv1d", init_weight, bound, (out_channels, fan_in), first)
        self.weight = Parameter(weight.reshape(out_channels, -1, kernel_size))
        self.bias = None if start is None else Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolved sequences."""
        options = self.stride, self.padding, self.dilation
        y = convolved("Conv1d", x, self.weight, *options, self.groups)
        return y if self.bias is None else y + self.bias.reshape(-1, 1)


class MaxPool2d(Module):
    """The largest of each window.

    Args:
        kernel_size: window, one number or rows and columns.
        stride: None is the kernel.
        padding: around the image, below the kernel; it is never the largest.
        ceil_mode: make windows at the end that are not whole.

    Shape:
        x (B, C, H, W) -> (B, C, OH, OW)

    Raises:
        ValueError: a size is out of range.
        ShapeError: the padding reaches the kernel.

    Source: ggml_pool_2d.

    Example:
        >>> MaxPool2d(2)(ones((1, 3, 4, 6))).shape
        (1, 3, 2, 3)
    """

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, *, ceil_mode: bool = False
    ) -> None:
        who = type(self).__name__
        self.kernel_size = check_pair(who, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else check_pair(who, "stride", stride, 1)
        self.padding = check_pair(who, "padding", padding, 0)
        if any(p >= k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            raise ShapeError(
                f"{who}: padding must be below kernel_size; got {padding}, {kernel_size}"
            )
        self.ceil_mode = checks.flag(who, "ceil_mode", ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled images."""
        window = self.kernel_size, self.stride, self.padding
        return functional.max_pool2d(x, *window, ceil_mode=self.ceil_mode)


class AvgPool2d(MaxPool2d):
    """The mean of each window.

    Args:
        kernel_size: window, one number or rows and columns.
        stride: None is the kernel.
        padding: around the image, below the kernel.
        ceil_mode: make windows at the end that are not whole.
        count_include_pad: padding counts as zeros; False leaves it out of the means.
        divisor_override: what the sum of a window is divided by; None is how much it counts.

    Shape:
        x (B, C, H, W) -> (B, C, OH, OW)

    Raises:
        ValueError: a size is out of range.
        ShapeError: the padding reaches the kernel.

    Source: ggml_pool_2d.

    Example:
        >>> AvgPool2d(2)(ones((1, 3, 4, 6))).shape
        (1, 3, 2, 3)
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        who = type(self).__name__
        super().__init__(kernel_size, stride, padding, ceil_mode=ceil_mode)
        self.count_include_pad = checks.flag(who, "count_include_pad", count_include_pad)
        self.divisor_override = (
            None
            if divisor_override is None
            else checks.whole(who, "divisor_override", divisor_override, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled images."""
        window = self.kernel_size, self.stride, self.padding
        counts = self.ceil_mode, self.count_include_pad, self.divisor_override
        return functional.avg_pool2d(x, *window, *counts)


class GlobalAvgPool2d(Module):
    """The mean of each channel over the whole image.

    Shape:
        x (B, C, H, W) -> (B, C)

    Raises:
        ShapeError: x is not (B, C, H, W).

    Source: Lin et al. 2013, arXiv:1312.4400.

    Example:
        >>> GlobalAvgPool2d()(ones((2, 3, 4, 4))).shape
        (2, 3)
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the means."""
        if need_tensor("GlobalAvgPool2d", "x", x).ndim != 4:
            raise ShapeError(f"GlobalAvgPool2d: x must be (B, C, H, W); got {x.shape}")
        return ops.mean_rows(x.reshape(*x.shape[:2], -1)).reshape(x.shape[:2])


class Flatten(Module):
    """Put axes into one: all but the first.

    Args:
        start_dim: the first of them.
        end_dim: the last of them.

    Shape:
        x (B, ...) -> (B, N)

    Raises:
        TypeError: an argument is not a whole number.
        ShapeError: x has no such axes.

    Example:
        >>> Flatten()(ones((2, 3, 4, 4))).shape
        (2, 48)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = checks.whole("Flatten", "start_dim", start_dim)
        self.end_dim = checks.whole("Flatten", "end_dim", end_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows."""
        if need_tensor("Flatten", "x", x).ndim < 1:
            raise ShapeError("Flatten: x must have an axis; got a scalar")
        if x.ndim == 1 and (self.start_dim, self.end_dim) == (1, -1):
            return x.reshape(x.shape[0], -1)
        return x.flatten(self.start_dim, self.end_dim)
