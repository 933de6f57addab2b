# SPDX-License-Identifier: MIT
"""Operands of the losses, and the reduction of their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...errors import DTypeError, ShapeError
from ...ops.operands import need_float
from ...tensors import Tensor

__all__ = [
    "KL_REDUCTIONS",
    "REDUCTIONS",
    "as_weight",
    "maybe_float",
    "need_predictions",
    "ratio",
    "reduce",
    "same_shape",
]

REDUCTIONS = ("mean", "sum", "none")
KL_REDUCTIONS = ("mean", "batchmean", "sum", "none")


def maybe_float(who: str, name: str, x: Any) -> Tensor | None:
    """Return an f32 tensor, or None."""
    return None if x is None else need_float(who, name, x)


def need_predictions(who: str, name: str, x: Any, target_name: str, target: Any) -> Tensor:
    """Return the f32 predictions of a loss; raise for targets in their place."""
    both = isinstance(x, Tensor) and isinstance(target, Tensor)
    if both and x.dtype.name == "i32" and target.dtype.name == "f32":
        raise DTypeError(
            f"{who}: {name} must come first, the predictions, and then {target_name}; got whole "
            f"numbers (i32) of shape {x.shape} first, and f32 of {target.shape} second: swap them"
        )
    if both and name == "logits" and x.dtype.name == target.dtype.name == "i32":
        raise DTypeError(
            f"{who}: {name} must be the f32 outputs of the model, one for each class; got whole "
            f"numbers (i32) of shape {x.shape}: leave out argmax"
        )
    return need_float(who, name, x)


def same_shape(who: str, x: Any, target: Any) -> None:
    """Raise unless both are f32 tensors of one shape."""
    need_predictions(who, "x", x, "target", target)
    need_float(who, "target", target)
    if x.shape != target.shape:
        raise ShapeError(
            f"{who}: x and target must have one shape; got {x.shape} and {target.shape}"
            + (f": use target.reshape{x.shape}" if x.numel() == target.numel() else "")
        )


def as_weight(who: str, name: str, weight: Any, shape: tuple[int, ...]) -> Tensor:
    """Return a weight broadcast to `shape`; raise unless it is f32 and fits."""
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
