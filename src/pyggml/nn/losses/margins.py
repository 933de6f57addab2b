# SPDX-License-Identifier: MIT
"""Losses with margins, and negative logarithms of likelihoods, under PyTorch's names."""

from __future__ import annotations

import math

from ... import checks, ops
from ...errors import composed
from ...ops.operands import need_float
from ...tensors import Tensor, without_gradient
from ...tensors.on_demand import on_demand
from .base import Loss
from .distribution import binary_cross_entropy_with_logits
from .reduction import REDUCTIONS, maybe_float, reduce, same_shape

__all__ = [
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "MultiLabelSoftMarginLoss",
    "PoissonNLLLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multilabel_soft_margin_loss",
    "poisson_nll_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
]


@on_demand
@composed
def margin_ranking_loss(
    a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target · (a - b)): a should be larger where target is 1, smaller for -1.

    Args:
        a: f32.
        b: f32.
        target: 1 or -1, f32.
        margin: the difference that is asked for.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes do not broadcast.

    Source: torch.nn.functional.margin_ranking_loss.

    Example:
        >>> margin_ranking_loss(ones((2,)), zeros((2,)), ones((2,)), 1.5).item()
        0.5
    """
    who = "margin_ranking_loss"
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    wanted = ops.mul(need_float(who, "target", target), ops.sub(a, b))
    least = checks.number(who, "margin", margin)
    return reduce(ops.relu(ops.scale(wanted, -1.0, least)), reduction)


@on_demand
@composed
def hinge_embedding_loss(
    x: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """x where target is 1, and max(0, margin - x) where it is -1.

    Args:
        x: distances, f32.
        target: 1 or -1, f32.
        margin: the distance that is asked for.
        reduction: "mean", "sum" or "none".

    Source: torch.nn.functional.hinge_embedding_loss.

    Example:
        >>> hinge_embedding_loss(tensor([0.5]), tensor([-1.0])).item()
        0.5
    """
    who = "hinge_embedding_loss"
    same_shape(who, x, target)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    apart = ops.relu(ops.scale(x, -1.0, checks.number(who, "margin", margin)))
    return reduce(ops.where(ops.gt(target, 0.0), x, apart), reduction)


@on_demand
@composed
def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target · x)), of targets 1 and -1.

    Source: torch.nn.functional.soft_margin_loss.

    Example:
        >>> round(soft_margin_loss(zeros((2,)), ones((2,))).item(), 4)
        0.6931
    """
    same_shape("soft_margin_loss", x, target)
    checks.choice("soft_margin_loss", "reduction", reduction, REDUCTIONS)
    return reduce(ops.softplus(ops.neg(ops.mul(target, x))), reduction)


@on_demand
@composed
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin), of norms along the last axis.

    Args:
        anchor: f32.
        positive: what should be near.
        negative: what should be far.
        margin: the difference that is asked for.
        p: of the norm, see `ops.vector_norm`.
        eps: added to the differences, so that a norm is above 0.
        swap: take the smaller one of the distances of negative to anchor and to positive.
        reduction: "mean", "sum" or "none".

    Source: torch.nn.functional.triplet_margin_loss; Balntas et al. 2016.

    Example:
        >>> x = zeros((1, 2))
        >>> triplet_margin_loss(x, x, x).item()
        1.0
    """
    who = "triplet_margin_loss"
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    little, least = checks.number(who, "eps", eps), checks.number(who, "margin", margin)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return ops.vector_norm(ops.add(ops.sub(a, b), little), p, -1)

    near, far = distance(anchor, positive), distance(anchor, negative)
    if checks.flag(who, "swap", swap):
        far = ops.minimum(far, distance(positive, negative))
    return reduce(ops.relu(ops.add(ops.sub(near, far), least)), reduction)


@on_demand
@composed
def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of the binary cross-entropy of logits, where each class is 0 or 1.

    Shape:
        x (..., C), target (..., C), weight (C,) -> (), or (...) for "none"

    Source: torch.nn.functional.multilabel_soft_margin_loss.

    Example:
        >>> round(multilabel_soft_margin_loss(zeros((2, 3)), ones((2, 3))).item(), 4)
        0.6931
    """
    checks.choice("multilabel_soft_margin_loss", "reduction", reduction, REDUCTIONS)
    each = binary_cross_entropy_with_logits(x, target, weight, "none")
    return reduce(ops.mean(each, -1), reduction)


@on_demand
@composed
def poisson_nll_loss(
    x: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of counts.

    Args:
        x: logarithm of the expected count, f32; without `log_input` the count.
        target: counts, f32.
        log_input: x is a logarithm.
        full: add Stirling's approximation of log(target!), for targets above 1.
        eps: added to x before its logarithm.
        reduction: "mean", "sum" or "none".

    Source: torch.nn.functional.poisson_nll_loss.

    Example:
        >>> poisson_nll_loss(zeros((2,)), ones((2,))).item()
        1.0
    """
    who = "poisson_nll_loss"
    same_shape(who, x, target)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    little = checks.number(who, "eps", eps, 0)
    if checks.flag(who, "log_input", log_input):
        loss = ops.sub(ops.exp(x), ops.mul(target, x))
    else:
        loss = ops.sub(x, ops.mul(target, ops.log(ops.add(x, little))))
    if checks.flag(who, "full", full):
        count = ops.clamp(target, 1.0, math.inf)
        half = ops.scale(ops.log(ops.scale(count, 2 * math.pi)), 0.5)
        stirling = ops.add(ops.sub(ops.mul(count, ops.log(count)), count), half)
        loss = ops.add(loss, ops.mul(stirling, ops.gt(target, 1.0)))
    return reduce(loss, reduction)


@on_demand
@composed
def gaussian_nll_loss(
    x: Tensor,
    target: Tensor,
    var: Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of normal distributions with means x and variances var.

    Args:
        x: means, f32.
        target: f32.
        var: variances, f32, which broadcast.
        full: add log(2π) / 2.
        eps: the least variance.
        reduction: "mean", "sum" or "none".

    Source: torch.nn.functional.gaussian_nll_loss; Nix and Weigend 1994.

    Example:
        >>> gaussian_nll_loss(zeros((2,)), ones((2,)), ones((2,))).item()
        0.5
    """
    who = "gaussian_nll_loss"
    same_shape(who, x, target)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    least = checks.number(who, "eps", eps, above=0)
    # As in PyTorch the gradient does not see that a variance is held above eps.
    added = without_gradient(ops.sub(ops.clamp(need_float(who, "var", var), least, math.inf), var))
    held = ops.add(var, added)
    loss = ops.scale(ops.add(ops.log(held), ops.div(ops.sqr(ops.sub(x, target)), held)), 0.5)
    if checks.flag(who, "full", full):
        loss = ops.add(loss, 0.5 * math.log(2 * math.pi))
    return reduce(loss, reduction)


class MarginRankingLoss(Loss):
    """`functional.margin_ranking_loss`.

    Args:
        margin: the difference that is asked for.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self.margin = checks.number("MarginRankingLoss", "margin", margin)
        self.reduction = checks.choice("MarginRankingLoss", "reduction", reduction, REDUCTIONS)

    def forward(self, a: Tensor, b: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return margin_ranking_loss(a, b, target, self.margin, self.reduction)


class HingeEmbeddingLoss(Loss):
    """`functional.hinge_embedding_loss`.

    Args:
        margin: the distance that is asked for.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        self.margin = checks.number("HingeEmbeddingLoss", "margin", margin)
        self.reduction = checks.choice("HingeEmbeddingLoss", "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return hinge_embedding_loss(x, target, self.margin, self.reduction)


class SoftMarginLoss(Loss):
    """`functional.soft_margin_loss`.

    Args:
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = checks.choice("SoftMarginLoss", "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return soft_margin_loss(x, target, self.reduction)


class TripletMarginLoss(Loss):
    """`functional.triplet_margin_loss`.

    Args:
        margin: the difference that is asked for.
        p: of the norm.
        eps: added to the differences.
        swap: take the smaller one of the distances of negative to anchor and to positive.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ):
        who = "TripletMarginLoss"
        self.margin, self.p = checks.number(who, "margin", margin), checks.number(who, "p", p)
        self.eps, self.swap = checks.number(who, "eps", eps), checks.flag(who, "swap", swap)
        self.reduction = checks.choice(who, "reduction", reduction, REDUCTIONS)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class MultiLabelSoftMarginLoss(Loss):
    """`functional.multilabel_soft_margin_loss`.

    Args:
        weight: of each class, or None.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        who = "MultiLabelSoftMarginLoss"
        self.weight = maybe_float(who, "weight", weight)
        self.reduction = checks.choice(who, "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return multilabel_soft_margin_loss(x, target, self.weight, self.reduction)


class PoissonNLLLoss(Loss):
    """`functional.poisson_nll_loss`.

    Args:
        log_input: the input is a logarithm.
        full: add Stirling's approximation of log(target!).
        eps: added to the input before its logarithm.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ):
        who = "PoissonNLLLoss"
        self.log_input = checks.flag(who, "log_input", log_input)
        self.full = checks.flag(who, "full", full)
        self.eps = checks.number(who, "eps", eps, 0)
        self.reduction = checks.choice(who, "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return poisson_nll_loss(x, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(Loss):
    """`functional.gaussian_nll_loss`.

    Args:
        full: add log(2π) / 2.
        eps: the least variance.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        who = "GaussianNLLLoss"
        self.full = checks.flag(who, "full", full)
        self.eps = checks.number(who, "eps", eps, above=0)
        self.reduction = checks.choice(who, "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return gaussian_nll_loss(x, target, var, self.full, self.eps, self.reduction)
