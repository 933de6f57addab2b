# SPDX-License-Identifier: MIT
"""Optimizers, schedules, clipping and parameter groups."""

from . import schedules
from .adamw import Adam, AdamW
from .clip import GradNorm, clip_factor
from .groups import Group, ParamGroups
from .lion import Lion
from .optimizer import Optimizer
from .patterns import decay_groups
from .plateau import ReduceOnPlateau
from .registry import optimizers, schedule_functions
from .rmsprop import Adagrad, RMSprop
from .sgd import SGD

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "GradNorm",
    "Group",
    "Lion",
    "Optimizer",
    "ParamGroups",
    "RMSprop",
    "ReduceOnPlateau",
    "clip_factor",
    "decay_groups",
    "optimizers",
    "schedule_functions",
    "schedules",
]
