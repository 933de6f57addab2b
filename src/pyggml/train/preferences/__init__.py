# SPDX-License-Identifier: MIT
"""Preferences and rewards: losses of pairs, of single answers and of groups, and their batches."""

from .datasets import JudgedDataset, PairDataset, mismatched
from .logps import document_logps, sequence_logps, token_logps
from .losses import DPO_LOSSES, dpo_loss, kto_loss, orpo_loss, simpo_loss
from .objective import METHODS, REFERENCES, PreferenceLoss
from .policy import GRPO_LOSSES, GRPOLoss, group_advantages, grpo_loss
from .reference import reference_logps
from .reward import RewardDataset, RewardLoss, reward_loss
from .rollout_metrics import RolloutMetrics
from .rollouts import Rollouts

__all__ = [
    "DPO_LOSSES",
    "GRPO_LOSSES",
    "GRPOLoss",
    "METHODS",
    "REFERENCES",
    "JudgedDataset",
    "PairDataset",
    "PreferenceLoss",
    "RewardDataset",
    "RewardLoss",
    "RolloutMetrics",
    "Rollouts",
    "document_logps",
    "dpo_loss",
    "group_advantages",
    "grpo_loss",
    "kto_loss",
    "mismatched",
    "orpo_loss",
    "reference_logps",
    "reward_loss",
    "sequence_logps",
    "simpo_loss",
    "token_logps",
]
