# SPDX-License-Identifier: MIT
"""What the losses share: checks of their operands, and the reduction of their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import ops
from ...errors import ShapeError
from ...ops._check import is_scalar, need_float
from ...tensor import Tensor

__all__ = ["F32_MAX", "as_weight", "check_reduction", "number", "reduce", "same_shape"]

F32_MAX = float(np.finfo(np.float32).max)
_REDUCTIONS = ("mean", "sum", "none")


def check_reduction(who: str, reduction: Any, allowed: tuple[str, ...] = _REDUCTIONS) -> None:
    """Raise a ValueError for an unknown reduction."""
    if reduction not in allowed:
        raise ValueError(f"{who}: reduction must be {', '.join(allowed)}; got {reduction!r}")


def number(who: str, name: str, value: Any, least: float = 0.0, above: bool = False) -> float:
    """Return a finite number of at least `least`, or above it."""
    if not is_scalar(value) or not math.isfinite(value):
        raise ValueError(f"{who}: {name} must be a finite number; got {value!r}")
    if value < least or (above and value == least):
        raise ValueError(f"{who}: {name} must be {'>' if above else '>='} {least:g}; got {value!r}")
    return float(value)


def same_shape(who: str, x: Any, target: Any) -> None:
    """Raise unless both are f32 tensors of one shape."""
    need_float(who, "x", x)
    need_float(who, "target", target)
    if x.shape != target.shape:
        raise ShapeError(
            f"{who}: x and target must have one shape; got {x.shape} and {target.shape}"
        )


def as_weight(who: str, name: str, weight: Any, shape: tuple[int, ...]) -> Tensor:
    """Raise unless a weight is f32 and stretches to `shape`; return it stretched."""
    need_float(who, name, weight)
    try:
        fits = np.broadcast_shapes(weight.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{who}: {name} must stretch to {shape}; got {weight.shape}")
    return ops.broadcast_to(weight, shape)


def reduce(values: Tensor, reduction: str, weight: Tensor | None = None) -> Tensor:
    """Reduce values; with a weight the mean is the weighted one."""
    weighted = values if weight is None else ops.mul(values, weight)
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return ops.sum(weighted)
    if weight is None:
        return ops.mean(values)
    return ops.div(ops.sum(weighted), ops.sum(weight))
