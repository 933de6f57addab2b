# SPDX-License-Identifier: MIT
"""Optimizers, schedules, clipping and parameter groups."""

from . import schedules
from .adamw import AdamW
from .clip import ClipValue, GradNorm, clip_factor
from .groups import decay_groups
from .optimizer import Group, Optimizer, ParamGroups
from .sgd import SGD

__all__ = [
    "SGD",
    "AdamW",
    "ClipValue",
    "GradNorm",
    "Group",
    "Optimizer",
    "ParamGroups",
    "clip_factor",
    "decay_groups",
    "schedules",
]
