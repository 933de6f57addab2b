# SPDX-License-Identifier: MIT
"""What the losses share: checks of their operands, and the reduction of their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...checks import is_real
from ...errors import ShapeError
from ...ops.operands import need_float
from ...tensors import Tensor

__all__ = [
    "F32_MAX",
    "KL_REDUCTIONS",
    "as_weight",
    "check_margin",
    "check_reduction",
    "check_smoothing",
    "check_temperature",
    "flag",
    "maybe_float",
    "number",
    "ratio",
    "reduce",
    "same_shape",
    "whole",
]

F32_MAX = float(np.finfo(np.float32).max)
_REDUCTIONS = ("mean", "sum", "none")
KL_REDUCTIONS = ("mean", "batchmean", "sum", "none")


def check_reduction(who: str, reduction: Any, allowed: tuple[str, ...] = _REDUCTIONS) -> str:
    """Return the reduction; raise a ValueError for an unknown one."""
    if not isinstance(reduction, str) or reduction not in allowed:
        raise ValueError(f"{who}: reduction must be {', '.join(allowed)}; got {reduction!r}")
    return reduction


def check_smoothing(who: str, label_smoothing: Any) -> float:
    """Return the share of the targets that is spread, in [0, 1]."""
    if number(who, "label_smoothing", label_smoothing) > 1.0:
        raise ValueError(f"{who}: label_smoothing must be at most 1; got {label_smoothing}")
    return float(label_smoothing)


def check_margin(who: str, margin: Any) -> float:
    """Return a cosine, from -1 to 1."""
    if number(who, "margin", margin, least=-1.0) > 1.0:
        raise ValueError(f"{who}: margin must be from -1 to 1; got {margin}")
    return float(margin)


def check_temperature(who: str, temperature: Any) -> float:
    """Return what the cosines are divided by, whose inverse f32 holds."""
    if 1.0 / number(who, "temperature", temperature, above=True) > F32_MAX:
        raise ValueError(f"{who}: temperature is too small; got {temperature!r}")
    return float(temperature)


def maybe_float(who: str, name: str, x: Any) -> Tensor | None:
    """Return an f32 tensor, or None."""
    return None if x is None else need_float(who, name, x)


def number(who: str, name: str, value: Any, least: float = 0.0, above: bool = False) -> float:
    """Return a finite number of at least `least`, or above it."""
    real = is_real(value) and not isinstance(value, np.complexfloating)
    if not real or not -F32_MAX <= value <= F32_MAX:
        raise ValueError(f"{who}: {name} must be a finite number; got {value!r}")
    if value < least or (above and value == least):
        raise ValueError(f"{who}: {name} must be {'>' if above else '>='} {least:g}; got {value!r}")
    return float(value)


def whole(who: str, name: str, value: Any) -> int:
    """Return an integer, Python's or NumPy's, that i32 holds."""
    integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not integer or not -(2**31) <= value < 2**31:
        raise ValueError(f"{who}: {name} must be an integer and must fit i32; got {value!r}")
    return int(value)


def flag(who: str, name: str, value: Any) -> bool:
    """Return True or False; what is merely true is refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{who}: {name} must be True or False; got {value!r}")
    return bool(value)


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
    """Reduce values; with a weight the mean is the weighted one, and 0 where that sums to 0."""
    weighted = values if weight is None else ops.mul(values, weight)
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return ops.sum(weighted)
    if weight is None:
        return ops.mean(values)
    return ratio(ops.sum(weighted), ops.sum(weight))


def ratio(total: Tensor, count: Tensor) -> Tensor:
    """total / count, and 0 where nothing counts: 0 / 0 would make a whole run NaN."""
    some = ops.step(ops.abs(count))
    return ops.mul(ops.div(total, ops.add(count, ops.scale(some, -1.0, 1.0))), some)
