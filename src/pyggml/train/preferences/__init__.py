# SPDX-License-Identifier: MIT
"""Preferences and rewards: losses of pairs, of single completions and of groups."""

from .losses import DPO_LOSSES, dpo_loss, kto_loss, orpo_loss, simpo_loss
from .policy import GRPO_LOSSES, group_advantages, grpo_loss

__all__ = [
    "DPO_LOSSES",
    "GRPO_LOSSES",
    "dpo_loss",
    "group_advantages",
    "grpo_loss",
    "kto_loss",
    "orpo_loss",
    "simpo_loss",
]
