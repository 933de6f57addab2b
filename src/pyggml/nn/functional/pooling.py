# SPDX-License-Identifier: MIT
"""The largest and the mean of windows, with the arguments of PyTorch's functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...checks import flag, whole
from ...errors import composed
from ...ops.convolution import check_pair
from ...ops.operands import need_float, need_ndim
from ...tensors import Tensor, tensor
from ...tensors.on_demand import on_demand
from .operations import pad

__all__ = ["avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"]


@on_demand
@composed
def max_pool2d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    *,
    ceil_mode: bool = False,
) -> Tensor:
    """Take the largest of each window; see `ops.pool_2d`.

    Args:
        x: f32 images.
        kernel_size: window, one number or rows and columns.
        stride: None is the window.
        padding: around the image, below the window; it is never the largest.
        ceil_mode: make windows at the end that are not whole.

    Shape:
        x (N, C, H, W) -> (N, C, OH, OW)

    Example:
        >>> max_pool2d(ones((1, 2, 4, 4)), 2).shape
        (1, 2, 2, 2)
    """
    who = "max_pool2d"
    if flag(who, "ceil_mode", ceil_mode):
        # Such a window has the last row or column, which may be in it several times.
        rows, columns = _beyond(x, *_window(who, x, kernel_size, stride, padding))
        if rows or columns:
            x = pad(x, (0, columns, 0, rows), mode="replicate")
    return ops.pool_2d(x, kernel_size, stride, padding, "max")


@on_demand
@composed
def avg_pool2d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Take the mean of each window; see `ops.pool_2d`.

    Args:
        x: f32 images.
        kernel_size: window, one number or rows and columns.
        stride: None is the window.
        padding: around the image, below the window.
        ceil_mode: make windows at the end that are not whole.
        count_include_pad: padding counts as 0; False leaves it out of the means.
        divisor_override: what the sum of a window is divided by; None is how much it counts.

    Shape:
        x (N, C, H, W) -> (N, C, OH, OW)

    Source: torch.nn.functional.avg_pool2d; ggml_pool_2d.

    Example:
        >>> avg_pool2d(ones((1, 1, 3, 3)), 2, padding=1, count_include_pad=False).tolist()
        [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    who = "avg_pool2d"
    whole_windows = not flag(who, "ceil_mode", ceil_mode)
    counts_padding = flag(who, "count_include_pad", count_include_pad)
    if whole_windows and counts_padding and divisor_override is None:
        return ops.pool_2d(x, kernel_size, stride, padding, "avg")
    size, step, zeros = _window(who, x, kernel_size, stride, padding)
    beyond = (0, 0) if whole_windows else _beyond(x, size, step, zeros)
    given = pad(x, (0, beyond[1], 0, beyond[0])) if any(beyond) else x
    y = ops.pool_2d(given, size, step, zeros, "avg")
    area = size[0] * size[1]
    if divisor_override is not None:
        return ops.scale(y, area / whole(who, "divisor_override", divisor_override, 1))
    rows, columns = (
        _counts(*each, counts_padding)
        for each in zip(y.shape[2:], x.shape[2:], size, step, zeros, strict=True)
    )
    return ops.mul(y, tensor(area / np.outer(rows, columns), "f32", x.device))


def _window(who: str, x: Tensor, size: Any, stride: Any, padding: Any) -> Any:
    """Return size, stride and padding of rows and columns."""
    need_ndim(who, "x", need_float(who, "x", x), 4)
    pair = check_pair(who, "kernel_size", size, 1)
    step = pair if stride is None else check_pair(who, "stride", stride, 1)
    return pair, step, check_pair(who, "padding", padding, 0)


def _beyond(x: Tensor, size: Any, step: Any, zeros: Any) -> tuple[int, int]:
    """Return the rows and columns that windows at the end, which are not whole, have beyond x."""
    found = []
    for n, k, s, p in zip(x.shape[2:], size, step, zeros, strict=True):
        windows = -(-(n + 2 * p - k) // s) + 1
        if (windows - 1) * s >= n + p:  # it would begin behind x
            windows -= 1
        found.append(max(0, (windows - 1) * s + k - n - 2 * p))
    return found[0], found[1]


def _counts(windows: int, n: int, k: int, s: int, p: int, counts_padding: bool) -> np.ndarray:
    """Return how many elements count in each window along an axis."""
    first = np.arange(windows) * s - p
    last = np.minimum(first + k, n + p)
    return last - first if counts_padding else np.minimum(last, n) - np.maximum(first, 0)


@on_demand
@composed
def max_pool1d(
    x: Tensor,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    *,
    ceil_mode: bool = False,
) -> Tensor:
    """Take the largest of each window of sequences; see `max_pool2d`.

    Shape:
        x (N, C, T) -> (N, C, OT)

    Example:
        >>> max_pool1d(ones((1, 2, 6)), 2).shape
        (1, 2, 3)
    """
    images, (size, step, zeros) = _as_images("max_pool1d", x, kernel_size, stride, padding)
    return ops.squeeze(max_pool2d(images, size, step, zeros, ceil_mode=ceil_mode), 2)


@on_demand
@composed
def avg_pool1d(
    x: Tensor,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Take the mean of each window of sequences; see `avg_pool2d`.

    Shape:
        x (N, C, T) -> (N, C, OT)

    Example:
        >>> avg_pool1d(ones((1, 2, 6)), 2).shape
        (1, 2, 3)
    """
    images, (size, step, zeros) = _as_images("avg_pool1d", x, kernel_size, stride, padding)
    return ops.squeeze(avg_pool2d(images, size, step, zeros, ceil_mode, count_include_pad), 2)


def _as_images(who: str, x: Tensor, kernel: Any, stride: Any, padding: Any) -> tuple[Tensor, Any]:
    """Return sequences as images of one row, and their window, stride and padding."""
    need_ndim(who, "x", need_float(who, "x", x), 3)
    size = whole(who, "kernel_size", kernel, 1)
    step = size if stride is None else whole(who, "stride", stride, 1)
    zeros = whole(who, "padding", padding, 0)
    return ops.unsqueeze(x, 2), ((1, size), (1, step), (0, zeros))
