# SPDX-License-Identifier: MIT
"""Cross-entropy over class numbers and over probabilities."""

from __future__ import annotations

import math

from ..backend.library import lib
from ..checks import choice, whole
from ..errors import ShapeError
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.tensor import Tensor
from .elementwise import abs as absolute
from .elementwise import clamp, div, scale, step
from .operands import contiguous, need_dtype, need_float, need_tensor
from .reductions import sum as total
from .shape import cast, reshape

__all__ = ["cross_entropy", "cross_entropy_loss", "cross_entropy_rows"]

_I32 = -(2**31), 2**31 - 1


@on_demand
def cross_entropy_rows(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """-log softmax(logits)[target] of each row; 0 where the target is `ignore_index`.

    Only the logits get a gradient. No one-hot matrix is made. A target that is neither a class
    nor `ignore_index` makes its row NaN.

    Args:
        logits: f32.
        targets: i32 class numbers.
        ignore_index: the target of rows that do not count.

    Shape:
        logits (N, V), targets (N,) -> (N,)

    Raises:
        ShapeError: the extents do not fit.
        DTypeError: logits are not f32 or targets not i32.

    Source: ggml_cross_entropy_rows (an op of this project's patches).
    """
    who = "cross_entropy_rows"
    need_float(who, "logits", logits)
    need_tensor(who, "targets", targets)
    need_dtype(who, "targets", targets, "i32")
    ignore_index = whole(who, "ignore_index", ignore_index, *_I32)
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ShapeError(
            "cross_entropy_rows: needs logits (N, V) and targets (N,);"
            f" got logits.shape={logits.shape}, targets.shape={targets.shape}"
        )
    args = [contiguous(logits), contiguous(targets), ignore_index]
    return record(lib.ggml_cross_entropy_rows, args, targets.shape)


def _cure(logits: Tensor, targets: Tensor) -> str:
    """Return what makes class numbers of targets of another shape, for a message."""
    if targets.shape == logits.shape and logits.ndim:
        return ": give targets.argmax(-1), the classes of one-hot rows"
    wanted = logits.shape[:-1]
    return f": use targets.reshape{wanted}" if targets.shape == (*wanted, 1) else ""


@on_demand
def cross_entropy(
    logits: Tensor, targets: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of logits against class numbers.

    Args:
        logits: f32.
        targets: i32 class numbers.
        ignore_index: the target of positions that do not count, neither in sum nor in mean.
        reduction: "mean" over the positions that count (0 when none does), "sum", or "none".

    Shape:
        logits (..., V), targets (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the extents do not fit.
        ValueError: an unknown reduction.

    Example:
        >>> loss = cross_entropy(pg.zeros(2, 4), pg.tensor([0, 3]))
        >>> f"{loss.item():.4f}"
        '1.3863'
    """
    need_float("cross_entropy", "logits", logits)
    need_tensor("cross_entropy", "targets", targets)
    need_dtype("cross_entropy", "targets", targets, "i32")
    choice("cross_entropy", "reduction", reduction, ("mean", "sum", "none"))
    ignore_index = whole("cross_entropy", "ignore_index", ignore_index, *_I32)
    if logits.ndim < 1 or targets.shape != logits.shape[:-1]:
        raise ShapeError(
            "cross_entropy: targets must have the shape of logits less its last axis;"
            f" got logits.shape={logits.shape}, targets.shape={targets.shape}"
            + _cure(logits, targets)
        )
    n = math.prod(targets.shape)
    flat = contiguous(reshape(targets, (n,)))
    rows = cross_entropy_rows(reshape(logits, (n, logits.shape[-1])), flat, ignore_index)
    if reduction == "none":
        return reshape(rows, targets.shape)
    if reduction == "sum":
        return total(rows)
    distance = absolute(scale(cast(flat, "f32"), 1.0, -float(ignore_index)))
    counted = total(step(scale(distance, 1.0, -0.5)))
    return div(total(rows), clamp(counted, 1.0, float(n)))


@on_demand
def cross_entropy_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """-sum(labels · log softmax(logits)) of each row, averaged: soft labels, as in distillation.

    Only the logits get a gradient; the labels need not sum to one.

    Args:
        logits: f32.
        labels: f32 weights of the classes.

    Shape:
        logits (..., V), labels (..., V) -> ()

    Raises:
        ShapeError: the shapes differ.
        ValueError: the labels require a gradient.

    Source: ggml_cross_entropy_loss.
    """
    need_float("cross_entropy_loss", "logits", logits)
    need_float("cross_entropy_loss", "labels", labels)
    if logits.ndim < 1 or logits.shape != labels.shape:
        raise ShapeError(
            "cross_entropy_loss: logits and labels must have one shape (..., V);"
            f" got {logits.shape} and {labels.shape}"
        )
    if labels.requires_grad:
        raise ValueError("cross_entropy_loss: the labels cannot require a gradient; use .detach()")
    loss = record(lib.ggml_cross_entropy_loss, [contiguous(logits), contiguous(labels)], (1,))
    return reshape(loss, ())
