# SPDX-License-Identifier: MIT
"""The loss of group relative policy optimization (GRPO), and its advantages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import checks, ops
from ...data.dataset import IGNORE_INDEX
from ...errors import ShapeError
from ...nn.losses.distribution import counted
from ...ops.operands import need_float
from ...tensors import Tensor
from .logps import token_logps

__all__ = ["GRPO_LOSSES", "GRPOLoss", "group_advantages", "grpo_loss"]

GRPO_LOSSES = ("grpo", "bnpo", "dr_grpo")
"""The values of `loss_type` of `grpo_loss`."""
# TRL's; keeps a group of nearly equal rewards from being blown up.
_EPSILON = 1e-4


def group_advantages(
    rewards: ArrayLike, num_generations: int, scale_rewards: bool = True
) -> np.ndarray:
    """Return rewards less the mean of their group, divided by its standard deviation.

    Args:
        rewards: of the completions; those of a prompt stand side by side.
        num_generations: completions of a prompt, G >= 2.
        scale_rewards: divide by the standard deviation (with G - 1, plus 1e-4); without it, the
            difference to the mean is the advantage.

    Shape:
        rewards (N,) -> (N,) f32

    Raises:
        TypeError: rewards hold no numbers.
        ValueError: N is no multiple of G; or a reward, or an advantage, is not finite in f32.

    Source: Shao et al. 2024, arXiv:2402.03300; without scale: Liu et al. 2025, arXiv:2503.20783.

    Example:
        >>> group_advantages([1.0, 3.0, 5.0, 5.0], 2, scale_rewards=False).tolist()
        [-1.0, 1.0, 0.0, 0.0]
    """
    who = "group_advantages"
    size = checks.whole(who, "num_generations", num_generations, 2)
    values = checks.array(who, "rewards", rewards, kinds="iufb").astype(np.float64)
    if values.ndim != 1 or values.size % size:
        raise ValueError(
            f"{who}: rewards must be as many as groups of {size} have; got shape {values.shape}"
        )
    good = np.abs(values) <= checks.F32_MAX  # whose squares f64 can add
    if not good.all():
        raise ValueError(
            f"{who}: rewards must be finite in f32; got {values[~good][0]:g}: divide them, or lower"
            " their weights"
        )
    groups = values.reshape(-1, size)
    found = groups - groups.mean(axis=1, keepdims=True)
    if checks.flag(who, "scale_rewards", scale_rewards):
        found = found / (groups.std(axis=1, ddof=1, keepdims=True) + _EPSILON)
    most = float(np.abs(found).max(initial=0.0))
    if most > checks.F32_MAX:
        raise ValueError(
            f"{who}: rewards must differ from their mean by what f32 holds; got {most:g}: divide"
            " them, or give scale_rewards"
        )
    return np.asarray(found.reshape(-1), np.float32)


def grpo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    ref_logps: Tensor | None = None,
    beta: float = 0.0,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    loss_type: str = "grpo",
    max_completion_length: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the loss of group relative policy optimization.

    With ratio = exp(logps - old_logps), the loss of a token is -min(ratio A, clip(ratio, 1 -
    epsilon, 1 + epsilon_high) A) + beta (exp(ref_logps - logps) - (ref_logps - logps) - 1). Of
    these,

    - "grpo" takes the mean over each completion, then over the completions;
    - "bnpo" takes the mean over all tokens;
    - "dr_grpo" divides the sum by B * max_completion_length.

    Args:
        logps: of each token under the model that is trained.
        old_logps: under the model that wrote the completions.
        advantages: of the completions.
        mask: 1.0 of the tokens of the completion, 0.0 of the others.
        ref_logps: under the reference; None where beta is 0.
        beta: weight of the divergence from the reference, >= 0.
        epsilon: how far below 1 the ratio counts, from 0 to 1.
        epsilon_high: how far above 1; None is epsilon.
        loss_type: "grpo", "bnpo" or "dr_grpo".
        max_completion_length: most tokens of a completion, for "dr_grpo".
        reduction: "mean"; or "sum", which multiplies it by B.

    Shape:
        logps, old_logps, mask, ref_logps (B, T), advantages (B,) -> ()

    Raises:
        ShapeError: the shapes differ.
        ValueError: an option is out of range, or ref_logps are missing.

    Source: Shao et al. 2024, arXiv:2402.03300; dr_grpo: Liu et al. 2025, arXiv:2503.20783;
        epsilon_high: Yu et al. 2025, arXiv:2503.14476. Names as in TRL.

    Example:
        >>> same, ones = pg.zeros((2, 3)), pg.ones((2, 3))
        >>> grpo_loss(same, same, pg.tensor([1.0, 0.5]), ones).item()
        -0.75
    """
    who = "grpo_loss"
    need_float(who, "logps", logps)
    if logps.ndim != 2:
        raise ShapeError(f"{who}: logps must be (B, T); got {logps.shape}")
    rows = logps.shape[0]
    given = {"old_logps": old_logps, "mask": mask, "advantages": advantages}
    if ref_logps is not None:
        given["ref_logps"] = ref_logps
    for name, value in given.items():
        wanted = logps.shape[:1] if name == "advantages" else logps.shape
        if need_float(who, name, value).shape != wanted:
            raise ShapeError(f"{who}: {name} must have shape {wanted}; got {value.shape}")
    low = checks.number(who, "epsilon", epsilon, 0.0, 1.0)
    high = low if epsilon_high is None else checks.number(who, "epsilon_high", epsilon_high, 0.0)
    weight = checks.number(who, "beta", beta, 0.0)
    checks.choice(who, "loss_type", loss_type, GRPO_LOSSES)
    checks.choice(who, "reduction", reduction, ("mean", "sum"))
    if weight and ref_logps is None:
        raise ValueError(f"{who}: ref_logps must be given with beta > 0; got beta={weight}")
    if loss_type == "dr_grpo":
        if max_completion_length is None:
            raise ValueError(f"{who}: max_completion_length must be given with 'dr_grpo'; got None")
        checks.whole(who, "max_completion_length", max_completion_length, 1)
    ratio = ops.exp(ops.sub(logps, old_logps))
    factor = advantages.reshape(rows, 1)
    free = ops.mul(ratio, factor)
    clipped = ops.mul(ops.clamp(ratio, 1.0 - low, 1.0 + high), factor)
    # min(a, b) = a - relu(a - b)
    losses = ops.sub(ops.relu(ops.sub(free, clipped)), free)
    if weight and ref_logps is not None:
        away = ops.sub(ref_logps, logps)
        losses = ops.add(losses, ops.scale(ops.sub(ops.expm1(away), away), weight))
    losses = ops.mul(losses, mask)
    scale = 1.0 if reduction == "mean" else float(rows)
    if loss_type == "dr_grpo":
        assert max_completion_length is not None
        return ops.scale(ops.sum(losses), scale / (rows * max_completion_length))
    most = float(logps.numel())
    if loss_type == "bnpo":
        mean = ops.div(ops.sum(losses), ops.clamp(ops.sum(mask), 1.0, most))
        return ops.scale(mean, scale)
    lengths = ops.clamp(mask.sum(dim=1), 1.0, most)
    return ops.scale(ops.sum(ops.div(losses.sum(dim=1), lengths)), scale / rows)


class GRPOLoss:
    """The loss of group relative policy optimization for `Trainer`; `Rollouts` makes the batches.

    Args:
        beta: weight of the divergence from the reference, >= 0; 0 needs none.
        epsilon: how far below 1 the ratio of policies counts.
        epsilon_high: how far above 1; None is epsilon.
        loss_type: one of `GRPO_LOSSES`.
        max_completion_length: most tokens of a completion, for "dr_grpo".

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> GRPOLoss(beta=0.04).needs_reference
        True
    """

    def __init__(
        self,
        beta: float = 0.0,
        epsilon: float = 0.2,
        epsilon_high: float | None = None,
        loss_type: str = "grpo",
        max_completion_length: int | None = None,
    ) -> None:
        who = "GRPOLoss"
        self.beta = checks.number(who, "beta", beta, 0.0)
        checks.number(who, "epsilon", epsilon, 0.0, 1.0)
        if epsilon_high is not None:
            checks.number(who, "epsilon_high", epsilon_high, 0.0)
        checks.choice(who, "loss_type", loss_type, GRPO_LOSSES)
        if max_completion_length is not None:
            checks.whole(who, "max_completion_length", max_completion_length, 1)
        if loss_type == "dr_grpo" and max_completion_length is None:
            raise ValueError(f"{who}: max_completion_length must be given with 'dr_grpo'; got None")
        self._options: dict[str, Any] = {
            "epsilon": epsilon,
            "epsilon_high": epsilon_high,
            "loss_type": loss_type,
            "max_completion_length": max_completion_length,
        }

    @property
    def needs_reference(self) -> bool:
        """True if the batches must have log-probabilities under a reference."""
        return self.beta > 0

    def __call__(self, model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of a batch, and its completions."""
        logps = token_logps(model, x, y)
        # Completions of the model as it is need no second pass.
        old = inputs["old_logps"] if "old_logps" in inputs else logps.detach()
        mask = counted(y, IGNORE_INDEX)
        loss = grpo_loss(
            logps, old, inputs["advantages"], mask, inputs.get("ref_logps"), self.beta,
            reduction="sum", **self._options,
        )  # fmt: skip
        return loss, x.shape[0]
