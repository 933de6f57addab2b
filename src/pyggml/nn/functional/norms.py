# SPDX-License-Identifier: MIT
"""Normalisations with the arguments of PyTorch's functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ... import ops
from ...checks import f32, flag, number
from ...errors import ShapeError, fitting
from ...graph import attach_update, recompute
from ...ops.operands import need_float, need_ndim, need_tensor, need_wholes
from ...tensors import Tensor, without_gradient
from ...tensors.on_demand import on_demand

__all__ = ["F32_EPS", "batch_norm", "group_norm", "layer_norm", "normalized", "rms_norm"]

F32_EPS = 2.0**-23
"""What `rms_norm` adds by default: the distance from 1 to the next f32."""


def normalized(who: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the extents that a layer normalises over, from one number or several."""
    given = [shape] if isinstance(shape, int) else shape
    sizes = tuple(need_wholes(who, "normalized_shape", given))
    if not sizes or min(sizes) < 1:
        raise ShapeError(f"{who}: normalized_shape must be extents above 0; got {shape!r:.60}")
    return sizes


@on_demand
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise `x` over its last axes, scale it and add a bias.

    y = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
        x: activations.
        normalized_shape: extents of the last axes, or of the last one.
        weight: scale; None skips it.
        bias: None skips it.
        eps: added to the variance, > 0.

    Shape:
        x (..., C), weight (C,), bias (C,) -> (..., C) for one axis, (C,)

    Raises:
        ShapeError: x does not end in normalized_shape, or weight or bias is of another shape.

    Source: ggml_norm; Ba et al. 2016, arXiv:1607.06450; torch.nn.functional.layer_norm.

    Example:
        >>> layer_norm(ones((2, 4)), (4,), ones((4,))).shape
        (2, 4)
    """
    who, sizes = "layer_norm", _last("layer_norm", x, normalized_shape)
    y = ops.norm(_as_rows(x, sizes), eps)
    if weight is not None or bias is not None:
        recompute(y)
    if weight is not None:
        y = recompute(ops.mul(y, _vector(who, "weight", weight, sizes)))
    if bias is not None:
        y = recompute(ops.add(y, _vector(who, "bias", bias, sizes)))
    return y if len(sizes) == 1 else y.reshape(x.shape)


@on_demand
def rms_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide `x` by the root of its mean square over the last axes, then scale.

    y = x / sqrt(mean(x^2) + eps) * weight

    Args:
        x: activations.
        normalized_shape: extents of the last axes, or of the last one.
        weight: scale; None skips it.
        eps: added to the mean square, > 0; None is 2^-23, as in PyTorch.

    Shape:
        x (..., C), weight (C,) -> (..., C) for one axis, (C,)

    Raises:
        ShapeError: x does not end in normalized_shape, or weight is of another shape.

    Source: ggml_rms_norm; Zhang and Sennrich 2019, arXiv:1910.07467; torch.nn.functional.rms_norm.

    Example:
        >>> rms_norm(ones((2, 4)), (4,), ones((4,))).shape
        (2, 4)
    """
    sizes = _last("rms_norm", x, normalized_shape)
    y = ops.rms_norm(_as_rows(x, sizes), F32_EPS if eps is None else eps)
    if weight is not None:
        y = recompute(ops.mul(recompute(y), _vector("rms_norm", "weight", weight, sizes)))
    return y if len(sizes) == 1 else y.reshape(x.shape)


@on_demand
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise the channels of each image in groups, then scale them and add a bias.

    Args:
        x: images, sequences or rows.
        num_groups: number of groups; must divide C.
        weight: scale of each channel; None skips it.
        bias: of each channel; None skips it.
        eps: added to the variance, > 0.

    Shape:
        x (B, C), (B, C, L) or (B, C, H, W), weight (C,), bias (C,) -> as x

    Raises:
        ShapeError: x is of another shape, the groups do not divide C, or weight or bias is not
            (C,).

    Source: ggml_group_norm; Wu and He 2018, arXiv:1803.08494.

    Example:
        >>> group_norm(ones((2, 4, 3, 3)), 2).shape
        (2, 4, 3, 3)
    """
    need_ndim("group_norm", "x", x, 2, 3, 4)
    whole = (*x.shape, 1, 1)[:4]
    y = ops.group_norm(x if x.shape == whole else x.reshape(whole), num_groups, eps)
    y = y if x.shape == whole else y.reshape(x.shape)
    scale, shift = (
        None if each is None else _vector("group_norm", name, each, x.shape[1:2])
        for name, each in (("weight", weight), ("bias", bias))
    )
    return _by_channel(y, scale, shift)


@fitting
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel: by the batch while training, else by running statistics.

    y = (x - mean) / sqrt(var + eps) * weight + bias

    While training, whoever computes y moves the running statistics towards the batch's: new =
    (1 - momentum) old + momentum batch's, with the variance of a sample (divided by n - 1).

    Args:
        x: rows, sequences or images.
        running_mean: stored; None, while training, keeps none.
        running_var: as running_mean.
        weight: scale of each channel; None skips it.
        bias: of each channel; None skips it.
        training: normalise by the batch.
        momentum: from 0 to 1, or a scalar tensor.
        eps: added to the variance, > 0.

    Shape:
        x (B, C), (B, C, L) or (B, C, H, W), all others (C,) -> as x

    Raises:
        ShapeError: x is of another shape, another tensor is not (C,); or, training, a channel has
            a single element.
        ValueError: there are no running statistics, and it is not training.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167; torch.nn.functional.batch_norm.

    Example:
        >>> batch_norm(ones((2, 3)), zeros((3,)), ones((3,))).shape
        (2, 3)
    """
    who = "batch_norm"
    need_float(who, "x", x)
    need_ndim(who, "x", x, 2, 3, 4)
    channels = x.shape[1]
    f32(who, "eps", eps, above=0.0)
    if not isinstance(momentum, Tensor):
        number(who, "momentum", momentum, 0.0, 1.0)
    size = (channels,)
    mean, var, scale, shift = (
        None if each is None else _vector(who, name, each, size)
        for name, each in (
            ("running_mean", running_mean),
            ("running_var", running_var),
            ("weight", weight),
            ("bias", bias),
        )
    )
    if not flag(who, "training", training):
        if mean is None or var is None:
            raise ValueError(
                f"{who}: needs running_mean and running_var where it is not training; got None"
            )
        factor = 1.0 / ops.sqrt(var + eps)
        factor = factor if scale is None else factor * scale
        shift = -mean * factor if shift is None else -mean * factor + shift
        return _by_channel(x, factor, shift)
    count = x.numel() // channels
    if count < 2:
        raise ShapeError(
            f"{who}: training needs more than one element per channel; got x.shape={x.shape}: "
            "use a larger batch, or eval()"
        )
    # A channel becomes a row, which is what ggml normalises and has the gradient of.
    order = (1, 0, *range(2, x.ndim))
    channel_first = x.permute(*order)
    rows = channel_first.reshape(channels, count)
    y = _by_row(ops.norm(rows, eps), scale, shift)
    seen = without_gradient(rows)
    now = ops.mean_rows(seen)
    spread = ops.scale(ops.mean_rows(ops.sqr(seen - now)), count / (count - 1))
    for running, of_batch in ((mean, now), (var, spread)):
        if running is not None:
            moved = running + (of_batch.reshape(size) - running) * momentum
            attach_update(y, ops.cpy(moved, running))
    return y.reshape(channel_first.shape).permute(*order)


def _by_row(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else y * weight.reshape(-1, 1)
    return y if bias is None else y + bias.reshape(-1, 1)


def _by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (-1, *[1] * (x.ndim - 2))
    y = x if weight is None else x * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _last(who: str, x: Tensor, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the extents of the last axes, which must be those that were named."""
    need_tensor(who, "x", x)
    sizes = normalized(who, normalized_shape)
    if x.shape[-len(sizes) :] != sizes:
        raise ShapeError(
            f"{who}: x must end in the extents of normalized_shape, {sizes}; got {x.shape}"
        )
    return sizes


def _as_rows(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Make one axis of the last ones."""
    return x if len(sizes) == 1 else x.reshape(-1, math.prod(sizes))


def _vector(who: str, name: str, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a scale or a bias of that shape as one row."""
    if need_tensor(who, name, value).shape != shape:
        raise ShapeError(f"{who}: {name} must be of shape {shape}; got {value.shape}")
    return value if len(shape) == 1 else value.reshape(-1)
