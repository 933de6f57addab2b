# SPDX-License-Identifier: MIT
"""Numbers of a rollout: rewards, lengths and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["RolloutMetrics"]


@dataclass(frozen=True)
class RolloutMetrics:
    """Completions of one rollout in numbers.

    Args:
        rollout: its number.
        reward: mean of the summed rewards.
        reward_std: mean standard deviation within the groups.
        rewards: mean of each function's rewards, by name.
        length: mean tokens of a completion.
        ended: share of the completions that ended before `max_tokens`.
        tokens: tokens that were written.
        generation_s: seconds of writing them.
        scoring_s: seconds of the reward functions, and of log-probabilities under other weights.
        kl: mean divergence from the reference for each token, where there is one.
        samples: a prompt, a completion and its reward.
    """

    rollout: int
    reward: float
    reward_std: float
    rewards: Mapping[str, float]
    length: float
    ended: float
    tokens: int
    generation_s: float
    scoring_s: float
    kl: float | None = None
    samples: Sequence[tuple[str, str, float]] = field(default=())

    @property
    def tokens_per_s(self) -> float:
        """Tokens written for each second of generation."""
        return self.tokens / max(self.generation_s, 1e-9)
