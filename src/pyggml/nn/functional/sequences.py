# SPDX-License-Identifier: MIT
"""Pooling of sequences, channels of images and distances, under PyTorch's names."""

from __future__ import annotations

from ... import ops
from ...checks import flag, number, whole
from ...errors import ShapeError, composed
from ...ops.dropout import dropout as drop
from ...ops.operands import copied, need_float, need_ndim
from ...tensors import Tensor, ones
from ...tensors.on_demand import on_demand
from .norms import group_norm
from .operations import adaptive_avg_pool2d

__all__ = [
    "adaptive_avg_pool1d",
    "dropout1d",
    "dropout2d",
    "instance_norm",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
]


@composed
def adaptive_avg_pool1d(x: Tensor, output_size: int) -> Tensor:
    """Take means of windows of sequences, so many that the result has a length.

    Shape:
        x (N, C, T) -> (N, C, output_size)

    Example:
        >>> adaptive_avg_pool1d(ones((1, 2, 6)), 4).shape
        (1, 2, 4)
    """
    need_ndim("adaptive_avg_pool1d", "x", need_float("adaptive_avg_pool1d", "x", x), 3)
    length = whole("adaptive_avg_pool1d", "output_size", output_size, 1)
    return ops.squeeze(adaptive_avg_pool2d(ops.unsqueeze(x, 2), (1, length)), 2)


@composed
def dropout1d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of sequences with probability p, divide the others by 1 - p.

    Shape:
        x (N, C, T) -> as x

    Example:
        >>> dropout1d(ones((1, 2, 3)), training=False).shape
        (1, 2, 3)
    """
    return _dropped("dropout1d", x, p, training, 3)


@composed
def dropout2d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of images with probability p, divide the others by 1 - p.

    Shape:
        x (N, C, H, W) -> as x

    Source: Tompson et al. 2015, arXiv:1411.4280.

    Example:
        >>> dropout2d(ones((1, 2, 3, 3)), training=False).shape
        (1, 2, 3, 3)
    """
    return _dropped("dropout2d", x, p, training, 4)


def _dropped(who: str, x: Tensor, p: float, training: bool, ndim: int) -> Tensor:
    need_ndim(who, "x", need_float(who, "x", x), ndim)
    share = number(who, "p", p, 0.0, below=1 - 2**-24)
    if not flag(who, "training", training) or not share:
        return x
    channels = ones((*x.shape[:2], *(1,) * (ndim - 2)), device=x.device)
    return ops.mul(x, drop(channels, share))


@composed
def instance_norm(
    x: Tensor,
    running_mean: None = None,
    running_var: None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each image or sequence, then scale it and add a bias.

    Args:
        x: images or sequences.
        running_mean: None, as there are no running statistics.
        running_var: None.
        weight: scale of each channel.
        bias: of each channel.
        use_input_stats: True.
        momentum: not used.
        eps: added to the variance, > 0.

    Shape:
        x (N, C, H, W) or (N, C, T), weight and bias (C,) -> as x

    Raises:
        ValueError: running statistics are asked for.

    Source: Ulyanov et al. 2016, arXiv:1607.08022; ggml_group_norm.

    Example:
        >>> instance_norm(ones((1, 2, 3, 3))).shape
        (1, 2, 3, 3)
    """
    need_ndim("instance_norm", "x", need_float("instance_norm", "x", x), 3, 4)
    number("instance_norm", "momentum", momentum)
    used = flag("instance_norm", "use_input_stats", use_input_stats)
    if running_mean is not None or running_var is not None or not used:
        raise ValueError(
            "instance_norm: running_mean and running_var must be None, and use_input_stats True;"
            " got running statistics: use F.batch_norm"
        )
    images = ops.unsqueeze(x, 2) if x.ndim == 3 else x
    y = group_norm(images, x.shape[1], weight, bias, eps)
    return ops.squeeze(y, 2) if x.ndim == 3 else y


@composed
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Make images of r² times fewer channels, r times as high and wide.

    Shape:
        x (N, C · r², H, W) -> (N, C, H · r, W · r)

    Raises:
        ShapeError: r² does not divide the channels.

    Source: Shi et al. 2016, arXiv:1609.05158.

    Example:
        >>> pixel_shuffle(ones((1, 8, 2, 3)), 2).shape
        (1, 2, 4, 6)
    """
    need_ndim("pixel_shuffle", "x", need_float("pixel_shuffle", "x", x), 4)
    r = whole("pixel_shuffle", "upscale_factor", upscale_factor, 1, 2**15)
    n, channels, rows, columns = x.shape
    if channels % (r * r):
        raise ShapeError(
            f"pixel_shuffle: the channels of x must be a multiple of {r * r}; got x.shape={x.shape}"
        )
    if r == 1:
        return copied(x)
    # At most four axes: first the columns of r beside each other, then the rows.
    y = ops.permute(ops.reshape(x, (-1, r, rows, columns)), (0, 2, 3, 1))
    y = ops.permute(ops.reshape(y, (-1, r, rows, columns * r)), (0, 2, 1, 3))
    return ops.reshape(y, (n, channels // (r * r), rows * r, columns * r))


@composed
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """Make images of r² times as many channels, r times less high and wide.

    Shape:
        x (N, C, H · r, W · r) -> (N, C · r², H, W)

    Raises:
        ShapeError: r does not divide rows or columns.

    Source: torch.nn.functional.pixel_unshuffle.

    Example:
        >>> pixel_unshuffle(ones((1, 2, 4, 6)), 2).shape
        (1, 8, 2, 3)
    """
    need_ndim("pixel_unshuffle", "x", need_float("pixel_unshuffle", "x", x), 4)
    r = whole("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    n, channels, rows, columns = x.shape
    if rows % r or columns % r:
        raise ShapeError(
            f"pixel_unshuffle: {r} must divide the rows and columns of x; got x.shape={x.shape}"
        )
    if r == 1:
        return copied(x)
    y = ops.permute(ops.reshape(x, (-1, rows // r, r, columns)), (0, 2, 1, 3))
    y = ops.permute(ops.reshape(y, (-1, rows // r, columns // r, r)), (0, 3, 1, 2))
    return ops.reshape(y, (n, channels * r * r, rows // r, columns // r))


@on_demand
@composed
def pairwise_distance(
    a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Return the norms of a - b + eps along the last axis.

    Args:
        a: f32.
        b: f32; both broadcast.
        p: of the norm, see `ops.vector_norm`.
        eps: keeps the norm above 0.
        keepdim: leave the axis with extent one.

    Source: torch.nn.functional.pairwise_distance.

    Example:
        >>> round(pairwise_distance(zeros((1, 2)), tensor([[3.0, 4.0]])).item(), 3)
        5.0
    """
    least = number("pairwise_distance", "eps", eps)
    return ops.vector_norm(ops.add(ops.sub(a, b), least), p, -1, keepdim)
