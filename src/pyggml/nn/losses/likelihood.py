# SPDX-License-Identifier: MIT
"""Losses of probabilities and log-probabilities that a model has computed itself."""

from __future__ import annotations

import math

import numpy as np

from ... import checks, ops
from ...errors import ShapeError, fitting
from ...ops.operands import need_dtype, need_float
from ...tensors import Tensor
from ...tensors.on_demand import on_demand
from .base import Loss
from .distribution import class_weights_of, counted, picked
from .reduction import (
    REDUCTIONS,
    as_weight,
    maybe_float,
    need_predictions,
    ratio,
    reduce,
    same_shape,
)
from .targets import are_classes, are_probabilities, classes_or_nan, probabilities_or_nan

__all__ = ["BCELoss", "NLLLoss", "binary_cross_entropy", "nll_loss"]

_F32_TINY = float(np.finfo(np.float32).tiny)
# PyTorch takes no logarithm for less than this.
_LEAST_LOG = -100.0


@fitting
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-x at the target, of log-probabilities; `cross_entropy` takes logits, and is more exact.

    Args:
        x: f32 log-probabilities, as `log_softmax` gives them.
        target: i32 class numbers.
        weight: of each class; no gradient flows to it.
        ignore_index: class number of positions that do not count.
        reduction: "mean" over those that count, by their weights, "sum" or "none".

    Shape:
        x (..., V), target (...), weight (V,) -> (), or (...) for "none"

    Raises:
        ShapeError: the extents do not fit.
        DTypeError: x is not f32, or target not i32.
        ValueError: an unknown reduction, or a class number out of range that is stored. The loss of
            one that a graph computes is NaN.

    Source: torch.nn.functional.nll_loss; ggml_get_rows.

    Example:
        >>> round(nll_loss(ops.log_softmax(zeros((2, 4))), tensor([0, 3])).item(), 4)
        1.3863
    """
    who = "nll_loss"
    need_predictions(who, "x", x, "target", target)
    need_dtype(who, "target", target, "i32")
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    ignore_index = checks.whole(who, "ignore_index", ignore_index, -(2**31), 2**31 - 1)
    if x.ndim < 1 or target.shape != x.shape[:-1]:
        raise ShapeError(
            f"{who}: target must be x less the classes, its last axis; got x.shape={x.shape},"
            f" target.shape={target.shape}"
        )
    known = are_classes(who, "target", target, x.shape[-1], ignore_index)
    own = counted(target, ignore_index)
    if weight is not None:
        if need_float(who, "weight", weight).shape != x.shape[-1:]:
            raise ShapeError(f"{who}: weight must be {x.shape[-1:]}; got {weight.shape}")
        own = ops.mul(own, class_weights_of(weight.detach(), target))
    loss = ops.neg(ops.mul(picked(x, target), own))
    if not known:
        loss = ops.mul(loss, classes_or_nan(target, x.shape[-1], ignore_index))
    if reduction == "none":
        return loss
    return ops.sum(loss) if reduction == "sum" else ratio(ops.sum(loss), ops.sum(own))


@fitting
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(t * log(x) + (1 - t) * log(1 - x)), each logarithm at least -100.

    `binary_cross_entropy_with_logits` takes what is before the sigmoid, and is more exact.

    Args:
        x: f32 probabilities; at 0 and 1 themselves the gradient of the bounded logarithm is 0.
        target: f32 probabilities, in [0, 1].
        weight: of each element; it stretches to x.
        reduction: "mean", "sum" or "none".

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the shapes differ, or a weight does not stretch.
        DTypeError: an operand is not f32.
        ValueError: an unknown reduction, or a number outside of [0, 1] that is stored. The loss of
            one that a graph computes is NaN.

    Source: torch.nn.functional.binary_cross_entropy.

    Example:
        >>> round(binary_cross_entropy(tensor([0.5]), tensor([1.0])).item(), 4)
        0.6931
    """
    who = "binary_cross_entropy"
    same_shape(who, x, target)
    known = [are_probabilities(who, name, t) for name, t in (("x", x), ("target", target))]
    return _binary_cross_entropy(x, target, weight, reduction, *known)


@on_demand
def _binary_cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    x_is_known: bool,
    target_is_known: bool,
) -> Tensor:
    """Return the loss, NaN where numbers that are not known are no probabilities."""
    who = "binary_cross_entropy"
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    other = ops.scale(target, -1.0, 1.0)
    loss = ops.neg(
        ops.add(
            ops.mul(target, _log(x)),
            ops.mul(other, _log(ops.scale(x, -1.0, 1.0))),
        )
    )
    for t, is_known in ((x, x_is_known), (target, target_is_known)):
        if not is_known:
            loss = ops.mul(loss, probabilities_or_nan(t))
    if weight is not None:
        loss = ops.mul(loss, as_weight(who, "weight", weight, x.shape))
    return reduce(loss, reduction)


def _log(x: Tensor) -> Tensor:
    """log(x), and -100 at 0."""
    zero = ops.scale(ops.step(x), -1.0, 1.0)
    least = _LEAST_LOG - math.log(_F32_TINY)
    return ops.add(ops.log(ops.clamp(x, _F32_TINY, math.inf)), ops.scale(zero, least))


class NLLLoss(Loss):
    """`functional.nll_loss`; the classes are the last axis.

    Args:
        weight: of each class, or None.
        ignore_index: class number of positions that do not count.
        reduction: "mean", "sum" or "none".

    Example:
        >>> round(NLLLoss()(ops.log_softmax(zeros((2, 4))), tensor([0, 3])).item(), 4)
        1.3863
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ):
        self.weight = maybe_float("NLLLoss", "weight", weight)
        self.ignore_index = checks.whole(
            "NLLLoss", "ignore_index", ignore_index, -(2**31), 2**31 - 1
        )
        self.reduction = checks.choice("NLLLoss", "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return nll_loss(x, target, self.weight, self.ignore_index, self.reduction)


class BCELoss(Loss):
    """`functional.binary_cross_entropy`.

    Args:
        weight: of each element, or None.
        reduction: "mean", "sum" or "none".

    Example:
        >>> round(BCELoss()(ones((3,)) * 0.5, ones((3,))).item(), 4)
        0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        self.weight = maybe_float("BCELoss", "weight", weight)
        self.reduction = checks.choice("BCELoss", "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return binary_cross_entropy(x, target, self.weight, self.reduction)
