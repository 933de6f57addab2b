# SPDX-License-Identifier: MIT
"""Functions of each element by itself, made of ops."""

from __future__ import annotations

import math
from typing import Any

from ...checks import is_real, number
from ...errors import composed
from ...tensors.on_demand import on_demand
from ...tensors.tensor import Tensor
from ..activations import softplus
from ..elementwise import add, clamp, cos, div, exp, log, mul, neg, scale, sin, sqrt, sub, trunc
from ..operands import as_tensor, broadcast, need_float, shape_of

__all__ = [
    "exp2",
    "frac",
    "lerp",
    "log2",
    "log10",
    "logsigmoid",
    "reciprocal",
    "relu6",
    "rsqrt",
    "tan",
]


@on_demand
@composed
def reciprocal(x: Tensor) -> Tensor:
    """1 / x.

    Example:
        >>> reciprocal(tensor([2.0, 4.0])).tolist()
        [0.5, 0.25]
    """
    return div(1.0, need_float("reciprocal", "x", x))


@on_demand
@composed
def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    return div(1.0, sqrt(need_float("rsqrt", "x", x)))


@on_demand
@composed
def log2(x: Tensor) -> Tensor:
    """Logarithm to the base of 2; see `log`."""
    return scale(log(need_float("log2", "x", x)), 1.0 / math.log(2.0))


@on_demand
@composed
def log10(x: Tensor) -> Tensor:
    """Logarithm to the base of 10; see `log`."""
    return scale(log(need_float("log10", "x", x)), 1.0 / math.log(10.0))


@on_demand
@composed
def exp2(x: Tensor) -> Tensor:
    """2 to the power of x."""
    return exp(scale(need_float("exp2", "x", x), math.log(2.0)))


@on_demand
@composed
def tan(x: Tensor) -> Tensor:
    """Tangent."""
    return div(sin(need_float("tan", "x", x)), cos(x))


@on_demand
@composed
def frac(x: Tensor) -> Tensor:
    """Return the part behind the point, with the sign of x."""
    return sub(need_float("frac", "x", x), trunc(x))


@on_demand
@composed
def relu6(x: Tensor) -> Tensor:
    """x held between 0 and 6. Source: Krizhevsky 2010; ggml_clamp."""
    return clamp(need_float("relu6", "x", x), 0.0, 6.0)


@on_demand
@composed
def logsigmoid(x: Tensor) -> Tensor:
    """Logarithm of the sigmoid, without overflow. Source: ggml_softplus."""
    return neg(softplus(neg(need_float("logsigmoid", "x", x))))


@on_demand
@composed
def lerp(a: Tensor, b: Any, weight: Any) -> Tensor:
    """a + weight · (b - a).

    Args:
        a: f32.
        b: a tensor or a number.
        weight: a tensor or a number.

    Raises:
        ShapeError: the shapes do not broadcast.

    Source: torch.lerp.

    Example:
        >>> lerp(tensor([0.0, 10.0]), tensor([10.0, 20.0]), 0.5).tolist()
        [5.0, 15.0]
    """
    need_float("lerp", "a", a)
    end, share = (
        number("lerp", name, x, finite=False)
        if is_real(x)
        else need_float("lerp", name, as_tensor("lerp", name, x, a))
        for name, x in (("b", b), ("weight", weight))
    )
    broadcast("lerp", a=a.shape, b=shape_of(end), weight=shape_of(share))
    return add(a, mul(sub(end, a), share))
