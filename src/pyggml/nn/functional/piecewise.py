# SPDX-License-Identifier: MIT
"""Activations made of pieces, under PyTorch's names."""

from __future__ import annotations

from ... import ops
from ...checks import number
from ...errors import ShapeError, composed
from ...ops.operands import need_float
from ...tensors import Tensor
from ...tensors.on_demand import on_demand
from .activations import elu

__all__ = [
    "celu",
    "hardshrink",
    "hardtanh",
    "prelu",
    "selu",
    "softmin",
    "softshrink",
    "softsign",
    "tanhshrink",
    "threshold",
]

# Klambauer et al. 2017: with these the mean 0 and the variance 1 are a fixed point.
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


@on_demand
@composed
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x held between two numbers. Source: ggml_clamp.

    Example:
        >>> hardtanh(tensor([-2.0, 0.5])).tolist()
        [-1.0, 0.5]
    """
    low, high = (
        number("hardtanh", name, value)
        for name, value in (("min_val", min_val), ("max_val", max_val))
    )
    return ops.clamp(need_float("hardtanh", "x", x), low, high)


@on_demand
@composed
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x, and 0 where |x| is at most lambd.

    Example:
        >>> hardshrink(tensor([-2.0, 0.3])).tolist()
        [-2.0, 0.0]
    """
    end = number("hardshrink", "lambd", lambd)
    # What is above would leave out NaN.
    return ops.where(ops.le(ops.abs(need_float("hardshrink", "x", x)), end), 0.0, x)


@on_demand
@composed
def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| is at most lambd.

    Example:
        >>> softshrink(tensor([-2.0, 0.3])).tolist()
        [-1.5, 0.0]
    """
    end = number("softshrink", "lambd", lambd, 0)
    return ops.sub(x, ops.clamp(need_float("softshrink", "x", x), -end, end))


@on_demand
@composed
def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x).

    Example:
        >>> tanhshrink(tensor([0.0])).item()
        0.0
    """
    return ops.sub(need_float("tanhshrink", "x", x), ops.tanh(x))


@on_demand
@composed
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|).

    Example:
        >>> softsign(tensor([-1.0])).item()
        -0.5
    """
    return ops.div(x, ops.add(ops.abs(need_float("softsign", "x", x)), 1.0))


@on_demand
@composed
def softmin(x: Tensor, dim: int = -1) -> Tensor:
    """Softmax of -x along an axis.

    Example:
        >>> softmin(tensor([0.0, 0.0])).tolist()
        [0.5, 0.5]
    """
    return ops.softmax(ops.neg(need_float("softmin", "x", x)), dim)


@on_demand
@composed
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """x, and a value where it is at most a threshold.

    Example:
        >>> threshold(tensor([0.0, 2.0]), 1.0, 5.0).tolist()
        [5.0, 2.0]
    """
    below = ops.le(need_float("threshold", "x", x), number("threshold", "threshold", threshold))
    return ops.where(below, number("threshold", "value", value), x)


@on_demand
@composed
def selu(x: Tensor) -> Tensor:
    """ELU times a number, with which mean and variance keep 0 and 1.

    Source: Klambauer et al. 2017, arXiv:1706.02515.

    Example:
        >>> round(selu(tensor([1.0])).item(), 4)
        1.0507
    """
    return ops.scale(elu(need_float("selu", "x", x), _SELU_ALPHA), _SELU_SCALE)


@on_demand
@composed
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha · (exp(x / alpha) - 1) below.

    Source: Barron 2017, arXiv:1704.07483.

    Example:
        >>> celu(tensor([2.0]), 0.5).item()
        2.0
    """
    width = number("celu", "alpha", alpha, above=0)
    return ops.scale(elu(ops.scale(need_float("celu", "x", x), 1.0 / width)), width)


@on_demand
@composed
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x above 0, weight · x below.

    Args:
        x: f32; its second axis is that of the channels.
        weight: one factor, or one for each channel.

    Shape:
        x (N, C, ...), weight (1,) or (C,) -> as x

    Raises:
        ShapeError: weight is of another shape.

    Source: He et al. 2015, arXiv:1502.01852.

    Example:
        >>> prelu(tensor([-2.0, 2.0]), tensor([0.25])).tolist()
        [-0.5, 2.0]
    """
    need_float("prelu", "x", x)
    channels = x.shape[1] if x.ndim > 1 else 1
    if need_float("prelu", "weight", weight).numel() not in (1, channels) or weight.ndim > 1:
        raise ShapeError(
            f"prelu: weight must be (1,) or a factor for each of the {channels} channels of"
            f" x.shape={x.shape}; got weight.shape={weight.shape}"
        )
    if weight.numel() > 1:
        weight = ops.reshape(weight, (channels, *(1,) * (x.ndim - 2)))
    return ops.sub(ops.relu(x), ops.mul(ops.relu(ops.neg(x)), weight))
