# SPDX-License-Identifier: MIT
"""Optimizers, schedules, clipping and parameter groups."""

from typing import TYPE_CHECKING

from ..absent import absent_in
from . import schedules
from .adafactor import Adafactor
from .adamw import Adam, AdamW
from .adamw8bit import AdamW8bit
from .clip import ClipValue, GradNorm, clip_factor
from .ema import EMA
from .groups import Group, ParamGroups
from .lbfgs.lbfgs import LBFGS
from .lion import Lion
from .muon import Muon
from .optimizer import Optimizer
from .patterns import decay_groups, layerwise_lr, muon_groups, param_groups
from .registry import optimizers, schedule_functions
from .rmsprop import Adagrad, RMSprop
from .rounded import RoundedWeights
from .schedules.plateau import ReduceOnPlateau
from .sgd import SGD

__all__ = [
    "EMA",
    "LBFGS",
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamW8bit",
    "ClipValue",
    "GradNorm",
    "Group",
    "Lion",
    "Muon",
    "Optimizer",
    "ParamGroups",
    "RMSprop",
    "ReduceOnPlateau",
    "RoundedWeights",
    "clip_factor",
    "decay_groups",
    "layerwise_lr",
    "muon_groups",
    "optimizers",
    "param_groups",
    "schedule_functions",
    "schedules",
]

if not TYPE_CHECKING:  # type checkers go on reporting absent names
    __getattr__ = absent_in("optim", __name__)
