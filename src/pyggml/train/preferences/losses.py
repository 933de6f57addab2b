# SPDX-License-Identifier: MIT
"""Losses of preferences by the papers' formulas: DPO, IPO, hinge, ORPO, SimPO, KTO; TRL's names.

Their inputs are log-probabilities of whole completions; `sequence_logps` computes them.
"""

from __future__ import annotations

from typing import Any

from ... import checks, ops
from ...errors import ShapeError
from ...nn.losses.reduction import REDUCTIONS, reduce
from ...ops.operands import need_float
from ...tensors import Tensor

__all__ = ["DPO_LOSSES", "dpo_loss", "kto_loss", "orpo_loss", "simpo_loss"]

DPO_LOSSES = ("sigmoid", "ipo", "hinge")
"""The values of `loss_type` of `dpo_loss`."""

# Closer to zero, 1 - p is no number of f32: the odds of a completion of probability 1 are infinite.
_NEAR_ZERO = -1e-6
_LEAST = -3e38


def dpo_loss(
    policy_chosen_logps: Tensor,
    policy_rejected_logps: Tensor,
    reference_chosen_logps: Tensor,
    reference_rejected_logps: Tensor,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    loss_type: str = "sigmoid",
    reduction: str = "mean",
) -> Tensor:
    """Return the loss of direct preference optimization.

    h is the log-ratio of policy to reference, of the chosen minus that of the rejected completion:

    - "sigmoid": -(1 - s) log sigmoid(beta h) - s log sigmoid(-beta h), with s = label_smoothing;
    - "ipo": (h - 1 / (2 beta))^2, where the log-probabilities are means over the tokens;
    - "hinge": max(0, 1 - beta h).

    Args:
        policy_chosen_logps: of the preferred completions under the model that is trained.
        policy_rejected_logps: of the others.
        reference_chosen_logps: the same under the model that training begins with.
        reference_rejected_logps: of the others.
        beta: > 0; a larger one keeps the model closer to the reference.
        label_smoothing: share of the preferences that is taken to be wrong, at least 0 and below
            0.5; for "sigmoid".
        loss_type: "sigmoid", "ipo" or "hinge".
        reduction: "mean", "sum" or "none".

    Shape:
        each (B,) -> (), or (B,) for "none"

    Raises:
        ShapeError: the shapes differ.
        ValueError: an option is out of range, or label smoothing with another `loss_type`.

    Source: Rafailov et al. 2023, arXiv:2305.18290; smoothing: Mitchell 2023, "conservative DPO";
        ipo: Azar et al. 2023, arXiv:2310.12036; hinge: Zhao et al. 2023, arXiv:2305.10425. Names as
        in TRL.

    Example:
        >>> even = pg.tensor([-2.0])
        >>> round(dpo_loss(even, even, even, even).item(), 4)
        0.6931
    """
    who = "dpo_loss"
    ratio = _difference(
        who,
        policy_chosen_logps=policy_chosen_logps,
        policy_rejected_logps=policy_rejected_logps,
    )
    before = _difference(
        who,
        reference_chosen_logps=reference_chosen_logps,
        reference_rejected_logps=reference_rejected_logps,
    )
    _same(who, policy_chosen_logps=ratio, reference_chosen_logps=before)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    beta, smoothing = _numbers(who, beta, label_smoothing)
    checks.choice(who, "loss_type", loss_type, DPO_LOSSES)
    if smoothing and loss_type != "sigmoid":
        raise ValueError(
            f"{who}: label_smoothing must be 0 with loss_type={loss_type!r}; got {smoothing}: "
            "leave it out"
        )
    h = ops.sub(ratio, before)
    if loss_type == "ipo":
        losses = ops.sqr(ops.scale(h, 1.0, -1.0 / (2.0 * beta)))
    elif loss_type == "hinge":
        losses = ops.relu(ops.scale(h, -beta, 1.0))
    else:
        losses = _smoothed(ops.scale(h, beta), smoothing)
    return reduce(losses, reduction)


def orpo_loss(
    policy_chosen_logps: Tensor,
    policy_rejected_logps: Tensor,
    beta: float = 0.1,
    policy_nll_loss: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the loss of odds-ratio preference optimization, which needs no reference.

    nll - beta log sigmoid(log odds(chosen) - log odds(rejected)), with odds(p) = p / (1 - p)

    Args:
        policy_chosen_logps: of the preferred completions, means over their tokens.
        policy_rejected_logps: of the others.
        beta: weight of the odds ratio, > 0; the paper's lambda.
        policy_nll_loss: of the chosen completions; None takes -policy_chosen_logps.
        reduction: "mean", "sum" or "none".

    Shape:
        each (B,) -> (), or (B,) for "none"

    Raises:
        ShapeError: the shapes differ.
        ValueError: an option is out of range.

    Source: Hong et al. 2024, arXiv:2403.07691. Names as in TRL, whose likelihood is of prompt and
        completion, averaged over the batch.

    Example:
        >>> chosen, rejected = pg.tensor([-0.5]), pg.tensor([-1.0])
        >>> round(orpo_loss(chosen, rejected).item(), 4)
        0.532
    """
    who = "orpo_loss"
    ratio = _difference(
        who,
        policy_chosen_logps=policy_chosen_logps,
        policy_rejected_logps=policy_rejected_logps,
    )
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    beta, _ = _numbers(who, beta, 0.0)
    if policy_nll_loss is None:
        policy_nll_loss = ops.neg(policy_chosen_logps)
    _same(who, policy_chosen_logps=ratio, policy_nll_loss=policy_nll_loss)
    others = ops.sub(_log_rest(policy_chosen_logps), _log_rest(policy_rejected_logps))
    odds = _log_sigmoid(ops.sub(ratio, others))
    return reduce(ops.sub(policy_nll_loss, ops.scale(odds, beta)), reduction)


def simpo_loss(
    policy_chosen_logps: Tensor,
    policy_rejected_logps: Tensor,
    beta: float = 2.0,
    simpo_gamma: float = 0.5,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Return the loss of simple preference optimization, which needs no reference.

    -log sigmoid(beta (chosen - rejected) - simpo_gamma)

    Args:
        policy_chosen_logps: of the preferred completions, means over their tokens.
        policy_rejected_logps: of the others.
        beta: > 0.
        simpo_gamma: the margin of the rewards that is asked for, >= 0.
        label_smoothing: share of the preferences that is taken to be wrong, at least 0 and below
            0.5.
        reduction: "mean", "sum" or "none".

    Shape:
        each (B,) -> (), or (B,) for "none"

    Raises:
        ShapeError: the shapes differ.
        ValueError: an option is out of range.

    Source: Meng et al. 2024, arXiv:2405.14734. Names as in TRL.

    Example:
        >>> chosen, rejected = pg.tensor([-0.5]), pg.tensor([-1.0])
        >>> round(simpo_loss(chosen, rejected).item(), 4)
        0.4741
    """
    who = "simpo_loss"
    ratio = _difference(
        who,
        policy_chosen_logps=policy_chosen_logps,
        policy_rejected_logps=policy_rejected_logps,
    )
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    beta, smoothing = _numbers(who, beta, label_smoothing)
    gamma = checks.f32(who, "simpo_gamma", simpo_gamma, 0.0)
    return reduce(_smoothed(ops.scale(ratio, beta, -gamma), smoothing), reduction)


def kto_loss(
    policy_logps: Tensor,
    reference_logps: Tensor,
    labels: Tensor,
    policy_KL_logps: Tensor | None = None,
    reference_KL_logps: Tensor | None = None,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Return the loss of Kahneman-Tversky optimization: single completions, each good or bad.

    With r = policy_logps - reference_logps and z = max(0, mean(policy_KL_logps -
    reference_KL_logps)), through which no gradient flows: desirable_weight (1 - sigmoid(beta (r -
    z))) of a good completion, undesirable_weight (1 - sigmoid(beta (z - r))) of a bad one.

    Args:
        policy_logps: of the completions under the model that is trained.
        reference_logps: the same under the model that training begins with.
        labels: 1.0 of a good completion, 0.0 of a bad one.
        policy_KL_logps: of completions that answer other prompts; None takes z = 0.
        reference_KL_logps: the same under the reference.
        beta: > 0.
        desirable_weight: of good completions, >= 0.
        undesirable_weight: of bad ones, >= 0.
        reduction: "mean", "sum" or "none".

    Shape:
        policy_logps, reference_logps, labels (B,), the KL's (K,) -> (), or (B,) for "none"

    Raises:
        ShapeError: the shapes differ.
        ValueError: an option is out of range, or one of the KL's tensors is missing.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306. Names as in TRL, which sorts good and bad
        completions into tensors of their own.

    Example:
        >>> logps, labels = pg.tensor([-2.0, -3.0]), pg.tensor([1.0, 0.0])
        >>> kto_loss(logps, logps, labels).item()
        0.5
    """
    who = "kto_loss"
    ratio = _difference(who, policy_logps=policy_logps, reference_logps=reference_logps)
    _same(who, policy_logps=ratio, labels=labels)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    beta, _ = _numbers(who, beta, 0.0)
    good = checks.f32(who, "desirable_weight", desirable_weight, 0.0)
    bad = checks.f32(who, "undesirable_weight", undesirable_weight, 0.0)
    if (policy_KL_logps is None) != (reference_KL_logps is None):
        raise ValueError(
            f"{who}: policy_KL_logps and reference_KL_logps must be given together; got one of "
            "them: give both, or none"
        )
    if policy_KL_logps is not None:
        pairs = _difference(
            who, policy_KL_logps=policy_KL_logps, reference_KL_logps=reference_KL_logps
        )
        ratio = ops.sub(ratio, ops.relu(ops.mean(pairs)).detach())
    signed = ops.mul(ops.scale(ratio, beta), ops.scale(labels, 2.0, -1.0))
    weight = ops.scale(labels, good - bad, bad)
    return reduce(ops.mul(ops.sigmoid(ops.neg(signed)), weight), reduction)


def _numbers(who: str, beta: Any, smoothing: Any) -> tuple[float, float]:
    """Return beta, above 0, and a share of wrong preferences."""
    checks.number(who, "beta", beta, above=0.0)
    checks.number(who, "label_smoothing", smoothing, 0.0, below=0.5)
    return float(beta), float(smoothing)


def _difference(who: str, **pair: Any) -> Tensor:
    """Return one tensor minus another of its shape."""
    _same(who, **pair)
    first, second = pair.values()
    return ops.sub(first, second)


def _same(who: str, **pair: Any) -> None:
    """Raise unless two tensors are f32 and of one shape (B,)."""
    (name, first), (other, second) = pair.items()
    need_float(who, name, first)
    need_float(who, other, second)
    if first.ndim != 1 or first.shape != second.shape:
        raise ShapeError(
            f"{who}: {name} and {other} must have one shape (B,); got {first.shape} and "
            f"{second.shape}"
        )


def _smoothed(logits: Tensor, smoothing: float) -> Tensor:
    """Return -log sigmoid(x), with a share of the labels taken to be wrong."""
    losses = ops.softplus(ops.neg(logits))
    if not smoothing:
        return losses
    wrong = ops.softplus(logits)
    return ops.add(ops.scale(losses, 1.0 - smoothing), ops.scale(wrong, smoothing))


def _log_sigmoid(x: Tensor) -> Tensor:
    return ops.neg(ops.softplus(ops.neg(x)))


def _log_rest(logps: Tensor) -> Tensor:
    """Return log(1 - p) of log p."""
    return ops.log(ops.neg(ops.expm1(ops.clamp(logps, _LEAST, _NEAR_ZERO))))
