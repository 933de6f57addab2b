# SPDX-License-Identifier: MIT
"""Activation functions and gated units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backend.library import ffi, lib
from ..checks import flag, number
from ..errors import ShapeError, shown
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.tensor import Tensor
from .elementwise import unary
from .operands import contiguous, need_float

__all__ = [
    "elu",
    "geglu",
    "geglu_erf",
    "geglu_quick",
    "gelu",
    "gelu_erf",
    "gelu_quick",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "reglu",
    "relu",
    "sigmoid",
    "silu",
    "softplus",
    "swiglu",
    "swiglu_oai",
    "tanh",
    "xielu",
]


@on_demand
def relu(x: Tensor) -> Tensor:
    """max(x, 0). Source: ggml_relu."""
    return unary("relu", lib.ggml_relu, x)


@on_demand
def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x above 0, slope · x below. Source: ggml_leaky_relu; Maas et al. 2013."""
    need_float("leaky_relu", "x", x)
    factor = number("leaky_relu", "slope", slope, finite=False)
    return record(lib.ggml_leaky_relu, [contiguous(x), factor, False], x.shape)


@on_demand
def elu(x: Tensor) -> Tensor:
    """x above 0, exp(x) - 1 below. Source: ggml_elu; Clevert et al. 2015, arXiv:1511.07289."""
    return unary("elu", lib.ggml_elu, x)


@on_demand
def gelu(x: Tensor) -> Tensor:
    """GELU by its tanh formula, as GPT-2 has it.

    0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))

    Source: ggml_gelu; Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """
    return unary("gelu", lib.ggml_gelu, x)


@on_demand
def gelu_erf(x: Tensor) -> Tensor:
    """GELU by the error function, x Φ(x). Source: ggml_gelu_erf; arXiv:1606.08415."""
    return unary("gelu_erf", lib.ggml_gelu_erf, x)


@on_demand
def gelu_quick(x: Tensor) -> Tensor:
    """GELU by a sigmoid, x · sigmoid(1.702 x). Source: ggml_gelu_quick; arXiv:1606.08415."""
    return unary("gelu_quick", lib.ggml_gelu_quick, x)


@on_demand
def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x). Source: ggml_silu; Elfwing et al. 2017, arXiv:1702.03118."""
    return unary("silu", lib.ggml_silu, x)


@on_demand
def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent. Source: ggml_tanh."""
    return unary("tanh", lib.ggml_tanh, x)


@on_demand
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)). Source: ggml_sigmoid."""
    return unary("sigmoid", lib.ggml_sigmoid, x)


@on_demand
def hardsigmoid(x: Tensor) -> Tensor:
    """min(1, max(0, (x + 3) / 6)). Source: ggml_hardsigmoid; arXiv:1905.02244."""
    return unary("hardsigmoid", lib.ggml_hardsigmoid, x)


@on_demand
def hardswish(x: Tensor) -> Tensor:
    """x · hardsigmoid(x). Source: ggml_hardswish; Howard et al. 2019, arXiv:1905.02244."""
    return unary("hardswish", lib.ggml_hardswish, x)


@on_demand
def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)). Source: ggml_softplus."""
    return unary("softplus", lib.ggml_softplus, x)


@on_demand
def xielu(
    x: Tensor, alpha_n: float = 0.8, alpha_p: float = 0.8, beta: float = 0.5, eps: float = -1e-6
) -> Tensor:
    """softplus(alpha_p) x² + beta x above 0, else a (expm1(min(x, eps)) - x) + beta x.

    a is beta + softplus(alpha_n).

    Args:
        x: f32 tensor.
        alpha_n, alpha_p: curvature below and above 0, before softplus.
        beta: slope at 0.
        eps: below 0; keeps expm1 from 0.

    Raises:
        TypeError: what should be a number is none.
        ValueError: a number is not finite.

    Source: ggml_xielu; Huang and Schlag 2024, arXiv:2411.13010.
    """
    need_float("xielu", "x", x)
    given = {"alpha_n": alpha_n, "alpha_p": alpha_p, "beta": beta, "eps": eps}
    numbers = [number("xielu", name, n) for name, n in given.items()]
    return record(lib.ggml_xielu, [contiguous(x), *numbers], x.shape)


def _same(who: str, gate: Tensor, up: Tensor) -> None:
    need_float(who, "up", up)
    if gate.shape != up.shape:
        raise ShapeError(f"{who}: gate and up must have one shape; got {gate.shape} and {up.shape}")


def _halves(who: str, gate: Tensor) -> tuple[int, ...]:
    if gate.ndim == 0 or gate.shape[-1] % 2:
        raise ShapeError(
            f"{who}: without up, the last axis of gate must hold both halves; got {gate.shape}"
        )
    return (*gate.shape[:-1], gate.shape[-1] // 2)


def _gated(
    who: str, split: Callable[..., Any], fused: Any, gate: Tensor, up: Tensor | None, swapped: bool
) -> Tensor:
    need_float(who, "gate", gate)
    swapped = flag(who, "swapped", swapped)
    if up is not None:
        _same(who, gate, up)
        operands = [up, gate] if swapped else [gate, up]
        return record(split, [contiguous(t) for t in operands], gate.shape)
    return record(fused[swapped], [contiguous(gate)], _halves(who, gate))


@on_demand
def swiglu(gate: Tensor, up: Tensor | None = None, swapped: bool = False) -> Tensor:
    """silu(gate) · up, the gated unit of Llama.

    Args:
        gate: f32; without `up`, both halves along the last axis, the gate first.
        up: f32, or None.
        swapped: take the second operand, or half, for the gate.

    Shape:
        gate (..., C), up (..., C) -> (..., C); alone: gate (..., 2C) -> (..., C)

    Raises:
        ShapeError: the shapes differ, or the last axis is odd.

    Source: ggml_swiglu_split, ggml_swiglu; Shazeer 2020, arXiv:2002.05202.

    Example:
        >>> swiglu(ones((2, 6))).shape
        (2, 3)
    """
    fused = (lib.ggml_swiglu, lib.ggml_swiglu_swapped)
    return _gated("swiglu", lib.ggml_swiglu_split, fused, gate, up, swapped)


@on_demand
def reglu(gate: Tensor, up: Tensor | None = None, swapped: bool = False) -> Tensor:
    """relu(gate) · up; see `swiglu`.

    Source: ggml_reglu_split, ggml_reglu; arXiv:2002.05202.
    """
    fused = (lib.ggml_reglu, lib.ggml_reglu_swapped)
    return _gated("reglu", lib.ggml_reglu_split, fused, gate, up, swapped)


@on_demand
def geglu(gate: Tensor, up: Tensor | None = None, swapped: bool = False) -> Tensor:
    """gelu(gate) · up; see `swiglu`. Source: ggml_geglu_split, ggml_geglu; arXiv:2002.05202."""
    fused = (lib.ggml_geglu, lib.ggml_geglu_swapped)
    return _gated("geglu", lib.ggml_geglu_split, fused, gate, up, swapped)


@on_demand
def geglu_erf(gate: Tensor, up: Tensor | None = None, swapped: bool = False) -> Tensor:
    """gelu_erf(gate) · up; see `swiglu`. Source: ggml_geglu_erf_split, ggml_geglu_erf."""
    fused = (lib.ggml_geglu_erf, lib.ggml_geglu_erf_swapped)
    return _gated("geglu_erf", lib.ggml_geglu_erf_split, fused, gate, up, swapped)


@on_demand
def geglu_quick(gate: Tensor, up: Tensor | None = None, swapped: bool = False) -> Tensor:
    """gelu_quick(gate) · up; see `swiglu`. Source: ggml_geglu_quick_split, ggml_geglu_quick."""
    fused = (lib.ggml_geglu_quick, lib.ggml_geglu_quick_swapped)
    return _gated("geglu_quick", lib.ggml_geglu_quick_split, fused, gate, up, swapped)


def _swiglu_oai_fused(ctx: Any, x: Any, alpha: float, limit: float) -> Any:
    return lib.ggml_swiglu_oai(ctx, x, ffi.NULL, alpha, limit)


@on_demand
def swiglu_oai(
    gate: Tensor, up: Tensor | None = None, alpha: float = 1.702, limit: float = 7.0
) -> Tensor:
    """g · sigmoid(alpha g) · (u + 1), g = min(gate, limit), u held within ±limit.

    Args:
        gate: f32; without `up`, both halves along the last axis, the gate first.
        up: f32, or None.
        alpha: factor inside the sigmoid.
        limit: above 0.

    Shape:
        gate (..., C), up (..., C) -> (..., C); alone: gate (..., 2C) -> (..., C)

    Raises:
        ShapeError: the shapes differ, or the last axis is odd.
        ValueError: alpha or limit is out of range.

    Source: ggml_swiglu_oai; the gated unit of gpt-oss.
    """
    need_float("swiglu_oai", "gate", gate)
    numbers = [number("swiglu_oai", "alpha", alpha)]
    numbers.append(number("swiglu_oai", "limit", limit, finite=False))
    if not numbers[1] > 0:
        raise ValueError(f"swiglu_oai: needs a limit above 0; got {shown(limit)}")
    if up is None:
        shape = _halves("swiglu_oai", gate)
        return record(_swiglu_oai_fused, [contiguous(gate), *numbers], shape)
    _same("swiglu_oai", gate, up)
    return record(lib.ggml_swiglu_oai, [contiguous(gate), contiguous(up), *numbers], gate.shape)
