# SPDX-License-Identifier: MIT
"""Losses of numbers that should be near others."""

from __future__ import annotations

from ... import checks, ops
from ...tensors import Tensor
from ...tensors.on_demand import on_demand
from .reduction import REDUCTIONS, as_weight, reduce, same_shape

__all__ = ["huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss", "square_error"]


def _difference(
    who: str, x: Tensor, target: Tensor, reduction: str, weight: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """x - target and the stretched weight, all checked."""
    same_shape(who, x, target)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    stretched = None if weight is None else as_weight(who, "weight", weight, x.shape)
    return ops.sub(x, target), stretched


@on_demand
def mse_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The squared difference.

    Args:
        x: f32.
        target: f32.
        reduction: "mean", "sum" or "none".
        weight: of each element; it stretches to x. The mean is then sum(weight * loss) over
            sum(weight), and 0 where that is 0.

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the shapes differ, or the weight does not stretch.
        DTypeError: an operand is not f32.
        ValueError: an unknown reduction.

    Source: torch.nn.functional.mse_loss; GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR.

    Example:
        >>> mse_loss(tensor([1.0, 2.0]), tensor([1.0, 4.0])).item()
        2.0
    """
    difference, weight = _difference("mse_loss", x, target, reduction, weight)
    return reduce(ops.sqr(difference), reduction, weight)


@on_demand
def square_error(x: Tensor, target: Tensor, reduction: str = "sum") -> Tensor:
    """The sum of the squared differences, as ggml's own examples train on; see `mse_loss`.

    Source: square_error_loss of ggml's baby-llama.

    Example:
        >>> square_error(tensor([1.0, 2.0]), tensor([0.0, 4.0])).item()
        5.0
    """
    difference, _ = _difference("square_error", x, target, reduction, None)
    return reduce(ops.sqr(difference), reduction)


@on_demand
def l1_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The absolute difference; its gradient at 0 is 0. See `mse_loss` for the arguments.

    Source: torch.nn.functional.l1_loss.

    Example:
        >>> l1_loss(tensor([1.0, 2.0]), tensor([1.0, 4.0])).item()
        1.0
    """
    difference, weight = _difference("l1_loss", x, target, reduction, weight)
    return reduce(ops.abs(difference), reduction, weight)


@on_demand
def huber_loss(
    x: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared difference d up to `delta`, and delta * (|d| - delta / 2) beyond.

    Args:
        x: f32.
        target: f32.
        reduction: "mean", "sum" or "none".
        delta: where the parabola ends, > 0.
        weight: of each element, by which the loss is multiplied; it stretches to x. The mean stays
            over all elements, as in PyTorch.

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the shapes differ, or the weight does not stretch.
        ValueError: delta is not positive, or an unknown reduction.

    Source: Huber 1964; torch.nn.functional.huber_loss.

    Example:
        >>> huber_loss(tensor([1.0, 3.0]), tensor([0.0, 0.0]), "none").tolist()
        [0.5, 2.5]
    """
    delta = checks.f32("huber_loss", "delta", delta, above=0.0)
    difference, weight = _difference("huber_loss", x, target, reduction, weight)
    loss = _huber(difference, delta)
    return reduce(loss if weight is None else ops.mul(loss, weight), reduction)


@on_demand
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """`huber_loss` over its delta: the absolute difference, rounded off within `beta` of 0.

    Args:
        x: f32.
        target: f32.
        reduction: "mean", "sum" or "none".
        beta: where the parabola ends, >= 0; 0 is `l1_loss`.

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the shapes differ.
        ValueError: beta is negative, or an unknown reduction.

    Source: Girshick 2015, arXiv:1504.08083; torch.nn.functional.smooth_l1_loss.

    Example:
        >>> smooth_l1_loss(tensor([0.5, 3.0]), tensor([0.0, 0.0]), "none", beta=0.5).tolist()
        [0.25, 2.75]
    """
    beta = checks.f32("smooth_l1_loss", "beta", beta, 0.0)
    difference, _ = _difference("smooth_l1_loss", x, target, reduction, None)
    if beta * checks.F32_MAX < 1.0:  # its inverse is infinite in f32
        return reduce(ops.abs(difference), reduction)
    return reduce(ops.scale(_huber(difference, beta), 1.0 / beta), reduction)


def _huber(difference: Tensor, delta: float) -> Tensor:
    """c (d - c / 2) with c the difference held within delta: d² / 2 inside, a line outside."""
    held = ops.clamp(difference, -delta, delta)
    return ops.mul(held, ops.sub(difference, ops.scale(held, 0.5)))
