# SPDX-License-Identifier: MIT
"""Losses of classes and probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import checks, ops
from ...errors import DTypeError, ShapeError, fitting
from ...ops.operands import need_dtype, need_float, need_tensor
from ...tensors import Tensor, tensor
from ...tensors.on_demand import on_demand
from ...tensors.row_limits import limit_rows
from ...tensors.tracing import is_input
from .reduction import (
    KL_REDUCTIONS,
    REDUCTIONS,
    as_weight,
    need_predictions,
    ratio,
    reduce,
    same_shape,
)
from .targets import are_classes, have_classes

__all__ = [
    "binary_cross_entropy_with_logits",
    "class_weights_of",
    "counted",
    "cross_entropy",
    "kl_div",
    "picked",
    "z_loss",
]

_F32_TINY = float(np.finfo(np.float32).tiny)
# Whole numbers up to here are exact in f32.
_F32_WHOLE = 2**24


@fitting
def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(logits) at the target: a class number, or a probability for each class.

    Class numbers make no one-hot matrix. The classes are the last axis.

    Args:
        logits: f32.
        targets: i32 class numbers, or f32 probabilities (soft labels).
        weight: of each class; no gradient flows to it.
        ignore_index: class number of positions that do not count, neither in sum nor in mean.
        reduction: "mean", "sum" or "none". The mean over class numbers is over those that count,
            by their weights (0 when none does, or their weights are 0); over soft labels it is over
            all rows.
        label_smoothing: share of the target that is spread over all classes, in [0, 1].

    Shape:
        logits (..., V), targets (...) or (..., V), weight (V,) -> (), or (...) for "none"

    Raises:
        ShapeError: the extents do not fit.
        DTypeError: logits are not f32, or targets neither i32 nor f32.
        ValueError: an option is out of range, or a class number that is stored. The loss of one
            that a graph computes is NaN.

    Source: ggml_cross_entropy_rows, ggml_cross_entropy_loss; torch.nn.functional.cross_entropy;
        smoothing: Szegedy et al. 2016, arXiv:1512.00567.

    Example:
        >>> round(cross_entropy(zeros((2, 4)), tensor([0, 3])).item(), 4)
        1.3863
    """
    if have_classes(logits, targets, ignore_index):
        are_classes("cross_entropy", "targets", targets, logits.shape[-1], ignore_index)
    return _cross_entropy(logits, targets, weight, ignore_index, reduction, label_smoothing)


@on_demand
def _cross_entropy(
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """Return the cross-entropy with targets that have been looked at."""
    who = "cross_entropy"
    need_predictions(who, "logits", logits, "targets", targets)
    need_tensor(who, "targets", targets)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    checks.f32(who, "label_smoothing", label_smoothing, 0.0, 1.0)
    ignore_index = checks.whole(who, "ignore_index", ignore_index, -(2**31), 2**31 - 1)
    if logits.ndim < 1:
        raise ShapeError(f"{who}: logits must be (..., V); got a scalar")
    if weight is not None:
        need_float(who, "weight", weight)
        if weight.shape != logits.shape[-1:]:
            raise ShapeError(f"{who}: weight must be {logits.shape[-1:]}; got {weight.shape}")
        weight = weight.detach() if weight.requires_grad else weight
    if targets.dtype.name == "f32":
        return _soft(logits, targets, reduction, weight, label_smoothing)
    if targets.dtype.name != "i32":
        raise DTypeError(f"{who}: targets must be i32 or f32; got {targets.dtype.name}")
    if weight is None and label_smoothing == 0:
        return ops.cross_entropy(logits, targets, ignore_index, reduction)
    return _weighted(logits, targets, ignore_index, reduction, weight, label_smoothing)


def _weighted(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    reduction: str,
    weight: Tensor | None,
    smoothing: float,
) -> Tensor:
    """Class numbers with weights of classes or smoothing."""
    rows = ops.cross_entropy(logits, targets, ignore_index, "none")
    counts = counted(targets, ignore_index)
    own = counts if weight is None else ops.mul(counts, class_weights_of(weight, targets))
    loss = rows if weight is None else ops.mul(rows, own)
    if smoothing:
        spread = _spread(logits, weight, 1.0 / logits.shape[-1])
        loss = ops.add(
            ops.scale(loss, 1.0 - smoothing), ops.scale(ops.mul(spread, counts), smoothing)
        )
    if reduction == "none":
        return loss
    if reduction == "sum":
        return ops.sum(loss)
    return ratio(ops.sum(loss), ops.sum(own))


def counted(targets: Tensor, ignore_index: int) -> Tensor:
    """1 where a target counts, else 0."""
    distance = ops.abs(ops.scale(ops.cast(targets, "f32"), 1.0, -float(ignore_index)))
    return ops.step(ops.scale(distance, 1.0, -0.5))


def class_weights_of(weight: Tensor, targets: Tensor) -> Tensor:
    """The weight of each target's class; ignored targets get that of the nearest class."""
    classes = weight.numel()
    flat = _clamped(targets, classes)
    return ops.reshape(ops.get_rows(ops.reshape(weight, (classes, 1)), flat), targets.shape)


def _clamped(targets: Tensor, classes: int) -> Tensor:
    """The nearest class of each target, in one row."""
    if classes > _F32_WHOLE:
        raise ShapeError(f"cross_entropy: weight must have at most 2^24 classes; got {classes}")
    at = ops.cast(ops.clamp(ops.cast(targets, "f32"), 0.0, float(classes - 1)), "i32")
    limit_rows(at.node, classes)  # by the clamp
    flat = ops.reshape(at, (at.numel(),))
    limit_rows(flat.node, classes)
    return flat


def picked(x: Tensor, targets: Tensor) -> Tensor:
    """The element of each row at its target; ignored targets get that of the nearest class."""
    classes = x.shape[-1]
    if x.numel() > _F32_WHOLE:
        raise ShapeError(
            f"nll_loss: x must have at most 2^24 elements; got {x.numel()}: use cross_entropy"
        )
    found = _pick(ops.reshape(x, (targets.numel(), classes)), _clamped(targets, classes))
    return ops.reshape(found, targets.shape)


def _spread(logits: Tensor, weight: Tensor | None, share: Tensor | float) -> Tensor:
    """-sum(share * weight * log softmax(logits)) of each row, share a number or (..., V)."""
    amounts: Any = share if weight is None else ops.mul(weight, share)
    if isinstance(amounts, float):
        total: Any = amounts * logits.shape[-1]
        dots = ops.scale(ops.sum(logits, dim=-1), amounts)
    else:
        total = ops.sum(amounts, dim=-1)
        dots = ops.sum(ops.mul(logits, amounts), dim=-1)
    return ops.sub(ops.mul(_log_sum_exp(logits), total), dots)


def _log_sum_exp(logits: Tensor) -> Tensor:
    """log(sum(exp(logits))) of each row: its largest logit, and the cross-entropy of that class."""
    classes, rows = logits.shape[-1], math.prod(logits.shape[:-1])
    table = ops.reshape(logits, (rows, classes))
    sums = []
    most = max(1, _F32_WHOLE // classes)
    for first in range(0, rows, most):
        part = table[first : first + most] if rows > most else table
        at = ops.argmax(part, -1)
        sums.append(ops.add(ops.cross_entropy(part, at, -1, "none"), _pick(part, at)))
    found = sums[0] if len(sums) == 1 else ops.concat(sums)
    return ops.reshape(found, logits.shape[:-1])


def _pick(table: Tensor, at: Tensor) -> Tensor:
    """The element of each row at a column; numbers of elements are exact in f32."""
    rows, columns = table.shape
    starts = tensor(np.arange(rows, dtype=np.float32) * columns, device=table.device)
    number = ops.cast(ops.add(ops.cast(at, "f32"), starts), "i32")
    limit_rows(number.node, rows * columns)  # by what argmax gives
    return ops.reshape(ops.get_rows(ops.reshape(table, (rows * columns, 1)), number), (rows,))


def _soft(
    logits: Tensor, targets: Tensor, reduction: str, weight: Tensor | None, smoothing: float
) -> Tensor:
    """A probability for each class."""
    if targets.shape != logits.shape:
        raise ShapeError(
            "cross_entropy: f32 targets are a probability for each class, of logits' shape"
            f" {logits.shape}; got {targets.shape}; class numbers are i32: use"
            " targets.astype('i32')"
        )
    if smoothing:
        targets = ops.scale(targets, 1.0 - smoothing, smoothing / logits.shape[-1])
    # ggml's op gives the labels no gradient; of an input it cannot be told whether it wants one.
    constant = not targets.requires_grad and not is_input(targets.node)
    if weight is None and reduction == "mean" and constant:
        return ops.cross_entropy_loss(logits, targets)
    return reduce(_spread(logits, weight, targets), reduction)


@on_demand
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-(pos_weight * t * log sigmoid(x) + (1 - t) * log(1 - sigmoid(x))), stable for any x.

    Args:
        x: f32 logits.
        target: f32 probabilities, in [0, 1].
        weight: of each element, by which the loss is multiplied; it stretches to x. The mean stays
            over all elements, as in PyTorch.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive class; it stretches to x.

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the shapes differ, or a weight does not stretch.
        DTypeError: an operand is not f32.
        ValueError: an unknown reduction.

    Source: torch.nn.functional.binary_cross_entropy_with_logits; ggml_softplus.

    Example:
        >>> round(binary_cross_entropy_with_logits(tensor([0.0]), tensor([1.0])).item(), 4)
        0.6931
    """
    who = "binary_cross_entropy_with_logits"
    same_shape(who, x, target)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    # (1 - t) x + (1 + (p - 1) t) log(1 + exp(-x))
    soft = ops.softplus(ops.neg(x))
    if pos_weight is not None:
        more = ops.scale(as_weight(who, "pos_weight", pos_weight, x.shape), 1.0, -1.0)
        soft = ops.mul(soft, ops.scale(ops.mul(more, target), 1.0, 1.0))
    loss = ops.add(ops.mul(ops.scale(target, -1.0, 1.0), x), soft)
    if weight is not None:
        loss = ops.mul(loss, as_weight(who, "weight", weight, x.shape))
    return reduce(loss, reduction)


@on_demand
def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log target - x), of log-probabilities x; 0 where the target is 0.

    Args:
        x: f32 log-probabilities.
        target: f32 probabilities, or their logarithms.
        reduction: "mean" over all elements, "batchmean" over the first axis (what the divergence
            is), "sum" or "none".
        log_target: target holds logarithms.

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the shapes differ.
        DTypeError: an operand is not f32.
        ValueError: an unknown reduction.

    Source: Kullback and Leibler 1951; torch.nn.functional.kl_div.

    Example:
        >>> q, p = ops.log(tensor([[0.25, 0.75]])), tensor([[0.5, 0.5]])
        >>> round(kl_div(q, p, "batchmean").item(), 4)
        0.1438
    """
    same_shape("kl_div", x, target)
    checks.choice("kl_div", "reduction", reduction, KL_REDUCTIONS)
    if checks.flag("kl_div", "log_target", log_target):
        # The logarithm of 0 is -inf, and 0 times that NaN.
        finite = ops.clamp(target, -checks.F32_MAX, checks.F32_MAX)
        loss = ops.mul(ops.exp(finite), ops.sub(finite, x))
    else:
        loss = ops.mul(target, ops.sub(ops.log(ops.clamp(target, _F32_TINY, checks.F32_MAX)), x))
    if reduction == "batchmean":
        return ops.scale(ops.sum(loss), 1.0 / (x.shape[0] if x.ndim else 1))
    return reduce(loss, reduction)


@on_demand
def z_loss(
    logits: Tensor,
    targets: Tensor | None = None,
    coefficient: float = 1e-4,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """coefficient * log(sum(exp(logits)))^2: keeps the softmax's normaliser near 1.

    It is added to the cross-entropy of the same logits.

    Args:
        logits: f32; -inf takes a class out.
        targets: i32 class numbers, which say what counts; None counts all rows.
        coefficient: factor, >= 0.
        ignore_index: the target of positions that do not count.
        reduction: "mean" over the rows that count (0 when none does), "sum" or "none".

    Shape:
        logits (..., V), targets (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the extents do not fit.
        DTypeError: logits are not f32, or targets not i32.
        ValueError: an option is out of range.

    Source: Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, section 5.

    Example:
        >>> round(z_loss(zeros((2, 8)), coefficient=1.0).item(), 4)
        4.3241
    """
    need_float("z_loss", "logits", logits)
    checks.choice("z_loss", "reduction", reduction, REDUCTIONS)
    checks.f32("z_loss", "coefficient", coefficient, 0.0)
    ignore_index = checks.whole("z_loss", "ignore_index", ignore_index, -(2**31), 2**31 - 1)
    if logits.ndim < 1:
        raise ShapeError("z_loss: logits must be (..., V); got a scalar")
    loss = ops.scale(ops.sqr(_log_sum_exp(logits)), coefficient)
    if targets is None:
        return reduce(loss, reduction)
    need_tensor("z_loss", "targets", targets)
    need_dtype("z_loss", "targets", targets, "i32")
    if targets.shape != logits.shape[:-1]:
        raise ShapeError(
            f"z_loss: targets must be {logits.shape[:-1]}, logits less the classes;"
            f" got {targets.shape}"
        )
    counts = counted(targets, ignore_index)
    loss = ops.mul(loss, counts)
    if reduction != "mean":
        return reduce(loss, reduction)
    return ratio(ops.sum(loss), ops.sum(counts))
