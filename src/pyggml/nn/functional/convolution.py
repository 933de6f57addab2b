# SPDX-License-Identifier: MIT
"""Convolutions with the arguments of PyTorch's functions."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...checks import whole
from ...errors import composed
from ...ops.convolution import check_padding
from ...ops.operands import need_float, need_ndim, need_tensor
from ...tensors import Tensor
from ...tensors.on_demand import on_demand

__all__ = ["check_groups", "conv1d", "conv2d", "convolved"]


@on_demand
@composed
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve sequences with a kernel; see `ops.conv_1d`.

    `padding` may be "valid", none, or "same", which keeps T. For `groups` see `conv2d`.

    Shape:
        x (N, C, T), weight (O, C / groups, K), bias (O,) -> (N, O, OT)

    Example:
        >>> conv1d(ones((1, 2, 5)), ones((3, 2, 3))).shape
        (1, 3, 3)
    """
    need_ndim("conv1d", "weight", need_tensor("conv1d", "weight", weight), 3)
    zeros: Any = check_padding("conv1d", padding, weight.shape[2:], stride, dilation)
    y = convolved("conv1d", x, weight, stride, zeros, dilation, groups)
    return _with_bias(y, bias)


@on_demand
@composed
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve images with a kernel; see `ops.conv_2d`.

    Args:
        x: f32 images.
        weight: f32 kernel.
        bias: for each channel of the result.
        stride, padding, dilation: one number, or one for rows and one for columns. Padding may be
            "valid", none, or "same", which keeps the size.
        groups: parts of the channels of x and of the result, each with kernels of its own. One for
            each channel of x (depthwise) is a single op; otherwise each group is a convolution.

    Shape:
        x (N, C, H, W), weight (O, C / groups, KH, KW), bias (O,) -> (N, O, OH, OW)

    Raises:
        ShapeError: the channels differ, or the images are smaller than the kernel.
        ValueError: groups does not divide C and O.

    Example:
        >>> conv2d(ones((1, 2, 5, 5)), ones((3, 2, 3, 3)), padding=1).shape
        (1, 3, 5, 5)
    """
    need_ndim("conv2d", "weight", need_tensor("conv2d", "weight", weight), 4)
    padding = check_padding("conv2d", padding, weight.shape[2:], stride, dilation)
    return _with_bias(convolved("conv2d", x, weight, stride, padding, dilation, groups), bias)


def check_groups(who: str, groups: Any, channels: int, out_channels: int) -> int:
    """Return the number of groups, which divides the channels of x and of the result.

    Args:
        who: the function or layer.
        groups: as given.
        channels: of x.
        out_channels: of the result.

    Raises:
        TypeError: groups is not a whole number.
        ValueError: it does not divide both.
    """
    count = whole(who, "groups", groups, 1)
    if channels % count or out_channels % count:
        raise ValueError(
            f"{who}: groups must divide the channels of x and of the result; got {count} with "
            f"{channels} and {out_channels} channels"
        )
    return count


def convolved(
    who: str, x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """Convolve sequences or images, whole or in groups of channels.

    Args:
        who: the function or layer.
        x: (N, C, T) or (N, C, H, W).
        weight: kernels, with as many axes.
        stride, padding, dilation: numbers, of each axis of the kernel.
        groups: how many.

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: groups does not divide the channels.
    """
    convolve: Any = ops.conv_1d if weight.ndim == 3 else ops.conv_2d
    if whole(who, "groups", groups, 1) == 1:
        return convolve(x, weight, stride, padding, dilation)  # type: ignore[no-any-return]
    need_ndim(who, "x", need_float(who, "x", x), weight.ndim)
    channels, out = x.shape[1], weight.shape[0]
    check_groups(who, groups, channels, out)
    if weight.shape[1] != channels // groups:
        raise ValueError(
            f"{who}: weight must be (O, C / groups, …), C / groups = {channels // groups}; got "
            f"groups={groups}, x.shape={x.shape}, weight.shape={weight.shape}"
        )
    if groups == channels:
        return _depthwise(x, weight, stride, padding, dilation)
    parts = zip(ops.chunk(x, groups, 1), ops.chunk(weight, groups, 0), strict=True)
    return ops.cat([convolve(a, w, stride, padding, dilation) for a, w in parts], 1)


def _depthwise(x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """Convolve each channel with kernels of its own, one or several."""
    if weight.shape[0] > x.shape[1]:
        x = x.repeat_interleave(weight.shape[0] // x.shape[1], 1)
    if weight.ndim == 4:
        return ops.conv_2d_dw(x, weight, stride, padding, dilation)
    images, kernels = ops.unsqueeze(x, 2), ops.unsqueeze(weight, 2)
    return ops.squeeze(ops.conv_2d_dw(images, kernels, (1, stride), (0, padding), (1, dilation)), 2)


def _with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """Add one number to each channel, the second axis."""
    if bias is None:
        return y
    return ops.add(y, ops.reshape(bias, (1, bias.numel(), *(1,) * (y.ndim - 2))))
