# SPDX-License-Identifier: MIT
"""Initialisers that overwrite a tensor, under PyTorch's names."""

from __future__ import annotations

import math

import numpy as np

from ..checks import choice, f32
from ..errors import ShapeError
from ..ops.operands import need_float, need_ndim
from ..tensors import Tensor
from ..tensors.random import random_generator

__all__ = [
    "calculate_gain",
    "constant_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "sigmoid"), 1.0),
    **{"tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75, "leaky_relu": 0.01},
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor that keeps the variance behind an activation.

    Args:
        nonlinearity: "linear", "conv1d", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu" or
            "selu".
        param: slope of "leaky_relu"; None is 0.01.

    Source: torch.nn.init.calculate_gain.

    Example:
        >>> calculate_gain("tanh")
        1.6666666666666667
    """
    name = choice("calculate_gain", "nonlinearity", nonlinearity, tuple(_GAINS))
    if name != "leaky_relu":
        return _GAINS[name]
    slope = 0.01 if param is None else f32("calculate_gain", "param", param)
    return math.sqrt(2.0 / (1.0 + slope**2))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Overwrite with numbers of a normal distribution, and return the tensor.

    Args:
        tensor: a stored f32 tensor.
        mean: centre.
        std: standard deviation, >= 0.

    Example:
        >>> normal_(ones((2, 3)), std=0.02).shape
        (2, 3)
    """
    centre, width = f32("normal_", "mean", mean), f32("normal_", "std", std, 0.0)
    shape = need_float("normal_", "tensor", tensor).shape
    return tensor.copy_(random_generator().standard_normal(shape, np.float32) * width + centre)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Overwrite with numbers spread evenly over [a, b), and return the tensor.

    Args:
        tensor: a stored f32 tensor.
        a: the least.
        b: the end, >= a.

    Example:
        >>> uniform_(ones((2, 3)), -0.1, 0.1).shape
        (2, 3)
    """
    low = f32("uniform_", "a", a)
    high = f32("uniform_", "b", b, low)
    shape = need_float("uniform_", "tensor", tensor).shape
    return tensor.copy_(random_generator().random(shape, np.float32) * (high - low) + low)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Overwrite with numbers of a normal distribution that lie in [a, b]; return the tensor.

    Args:
        tensor: a stored f32 tensor.
        mean: centre.
        std: standard deviation, >= 0.
        a: the least.
        b: the most, > a.

    Raises:
        ValueError: [a, b] is more than four standard deviations from the centre.

    Example:
        >>> float(abs(trunc_normal_(ones((100,))).numpy()).max()) <= 2.0
        True
    """
    who = "trunc_normal_"
    centre, width = f32(who, "mean", mean), f32(who, "std", std, 0.0)
    low = f32(who, "a", a)
    high = f32(who, "b", b, above=low)
    if not low - 4 * width <= centre <= high + 4 * width:
        raise ValueError(f"{who}: [a, b] must be near the mean; got [{a}, {b}], mean {mean}")
    draw, shape = random_generator(), need_float(who, "tensor", tensor).shape
    values = np.asarray(draw.standard_normal(shape, np.float32) * width + centre)
    for _ in range(1000):
        outside = (values < low) | (values > high)
        if not outside.any():
            break
        values[outside] = draw.standard_normal(int(outside.sum()), np.float32) * width + centre
    return tensor.copy_(np.clip(values, low, high))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Overwrite with one number, and return the tensor.

    Example:
        >>> constant_(ones((2,)), 3.0).tolist()
        [3.0, 3.0]
    """
    value = f32("constant_", "val", val)
    shape = need_float("constant_", "tensor", tensor).shape
    return tensor.copy_(np.full(shape, value, np.float32))


def ones_(tensor: Tensor) -> Tensor:
    """Overwrite with ones, and return the tensor."""
    return constant_(need_float("ones_", "tensor", tensor), 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Overwrite with zeros, and return the tensor."""
    return constant_(need_float("zeros_", "tensor", tensor), 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Overwrite a matrix with ones on its diagonal and zeros elsewhere; return the tensor."""
    need_ndim("eye_", "tensor", need_float("eye_", "tensor", tensor), 2)
    return tensor.copy_(np.eye(*tensor.shape, dtype=np.float32))


def _fans(who: str, tensor: Tensor) -> tuple[int, int]:
    """Return fan_in and fan_out of a weight (out, in, ...)."""
    shape = need_float(who, "tensor", tensor).shape
    if len(shape) < 2:
        raise ShapeError(f"{who}: tensor must be a weight (out, in, ...); got shape {shape}")
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Overwrite evenly within gain · sqrt(6 / (fan_in + fan_out)); return the tensor.

    Source: Glorot and Bengio 2010.

    Example:
        >>> xavier_uniform_(w) is w
        True
    """
    bound = f32("xavier_uniform_", "gain", gain, 0.0)
    bound *= math.sqrt(6.0 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Overwrite normally with std gain · sqrt(2 / (fan_in + fan_out)); return the tensor.

    Source: Glorot and Bengio 2010.
    """
    factor = f32("xavier_normal_", "gain", gain, 0.0)
    return normal_(tensor, 0.0, factor * math.sqrt(2.0 / sum(_fans("xavier_normal_", tensor))))


def _kaiming(who: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan_in, fan_out = _fans(who, tensor)
    chosen = choice(who, "mode", mode, ("fan_in", "fan_out"))
    gain = calculate_gain(choice(who, "nonlinearity", nonlinearity, tuple(_GAINS)), a)
    return gain / math.sqrt(fan_in if chosen == "fan_in" else fan_out)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Overwrite evenly within gain · sqrt(3 / fan); return the tensor.

    Args:
        tensor: a stored f32 weight (out, in, ...).
        a: slope of "leaky_relu".
        mode: "fan_in" or "fan_out".
        nonlinearity: see `calculate_gain`.

    Source: He et al. 2015, arXiv:1502.01852.

    Example:
        >>> kaiming_uniform_(w, nonlinearity="relu") is w
        True
    """
    bound = math.sqrt(3.0) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Overwrite normally with std gain / sqrt(fan), and return the tensor; see `kaiming_uniform_`.

    Source: He et al. 2015, arXiv:1502.01852.
    """
    return normal_(tensor, 0.0, _kaiming("kaiming_normal_", tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Overwrite with rows, or columns, that are orthogonal and of length gain; return the tensor.

    Args:
        tensor: a stored f32 weight (out, in, ...), whose axes after the first count as one.
        gain: the length.

    Source: Saxe et al. 2013, arXiv:1312.6120.

    Example:
        >>> y = orthogonal_(zeros((2, 2))).numpy()
        >>> np.allclose(y @ y.T, np.eye(2), atol=1e-5)
        True
    """
    factor = f32("orthogonal_", "gain", gain)
    _fans("orthogonal_", tensor)
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    drawn = random_generator().standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    q *= np.sign(np.diag(r))
    matrix = q if rows >= columns else q.T
    return tensor.copy_((factor * matrix).astype(np.float32).reshape(tensor.shape))
