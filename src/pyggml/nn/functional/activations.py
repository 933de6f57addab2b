# SPDX-License-Identifier: MIT
"""Activations and dropout with the arguments of PyTorch's functions."""

from __future__ import annotations

import math

from ... import ops
from ...checks import choice, flag, number
from ...errors import ShapeError, composed, fitting
from ...ops.operands import axis_of, need_float
from ...tensors import Tensor
from ...tensors.on_demand import on_demand

__all__ = ["dropout", "elu", "gelu", "glu", "leaky_relu", "mish", "softplus"]


@fitting
def dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    seed: Tensor | int | None = None,
    index: int = 0,
) -> Tensor:
    """Zeros with probability p, everything else divided by 1 - p; see `ops.dropout`.

    Args:
        x: f32.
        p: probability, from 0 up to but not 1.
        training: False returns x as it is; a module gives `self.training`.
        seed: see `ops.dropout`.
        index: see `ops.dropout`.

    Raises:
        ValueError: p, seed or index is out of range.

    Source: torch.nn.functional.dropout.

    Example:
        >>> dropout(ones((3,)), 0.5, training=False).tolist()
        [1.0, 1.0, 1.0]
    """
    need_float("dropout", "x", x)
    number("dropout", "p", p, 0.0, below=1 - 2**-24)
    return ops.dropout(x, p, seed, index) if flag("dropout", "training", training) else x


@on_demand
@composed
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha · (exp(x) - 1) below. Source: ggml_elu; Clevert et al. 2015."""
    factor = number("elu", "alpha", alpha)
    if factor == 1:
        return ops.elu(x)
    # Each half has no part of the other: the difference of two infinities would be NaN.
    below = ops.elu(ops.clamp(x, -math.inf, 0.0))
    return ops.add(ops.relu(x), ops.scale(below, factor))


@on_demand
@composed
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x), the Gaussian error linear unit.

    Args:
        x: f32.
        approximate: "none" for the error function, "tanh" for the formula of GPT-2.

    Raises:
        ValueError: another `approximate`.

    Source: ggml_gelu_erf, ggml_gelu; Hendrycks and Gimpel 2016, arXiv:1606.08415.

    Example:
        >>> round(gelu(ones((1,))).item(), 4)
        0.8413
    """
    choice("gelu", "approximate", approximate, ("none", "tanh"))
    return ops.gelu_erf(x) if approximate == "none" else ops.gelu(x)


@on_demand
@composed
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where it is above 0, and negative_slope · x elsewhere. Source: ggml_leaky_relu."""
    return ops.leaky_relu(x, number("leaky_relu", "negative_slope", negative_slope))


@on_demand
@composed
def mish(x: Tensor) -> Tensor:
    """x · tanh(softplus(x)). Source: Misra 2019, arXiv:1908.08681."""
    return ops.mul(x, ops.tanh(ops.softplus(x)))


@on_demand
@composed
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of an axis times the sigmoid of the second.

    Args:
        x: f32.
        dim: the axis.

    Shape:
        x (..., 2 · C) -> (..., C) for the last axis; others alike

    Raises:
        ShapeError: the extent is odd, or x has no such axis.

    Source: Dauphin et al. 2016, arXiv:1612.08083.

    Example:
        >>> glu(ones((3, 4))).shape
        (3, 2)
    """
    axis = axis_of("glu", dim, need_float("glu", "x", x).ndim, "x")
    if x.shape[axis] % 2:
        raise ShapeError(f"glu: the extent of x along dim={axis} must be even; got {x.shape}")
    a, gate = ops.chunk(x, 2, axis)
    return ops.mul(a, ops.sigmoid(gate))


@on_demand
@composed
def softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta · x)) / beta, without overflow. Source: ggml_softplus."""
    factor = number("softplus", "beta", beta, above=0)
    if factor == 1:
        return ops.softplus(x)
    return ops.scale(ops.softplus(ops.scale(x, factor)), 1.0 / factor)
