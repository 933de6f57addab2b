# SPDX-License-Identifier: MIT
"""Learning-rate schedules."""

from .adaptive import Joined, is_adaptive, update_schedule
from .plateau import ReduceOnPlateau
from .schedules import (
    Schedule,
    constant,
    cosine,
    cosine_restarts,
    inverse_sqrt,
    join,
    linear,
    one_cycle,
    polynomial,
    warmup,
    warmup_cosine,
    warmup_stable_decay,
)

__all__ = [
    "Joined",
    "ReduceOnPlateau",
    "Schedule",
    "constant",
    "cosine",
    "cosine_restarts",
    "inverse_sqrt",
    "is_adaptive",
    "join",
    "linear",
    "one_cycle",
    "polynomial",
    "update_schedule",
    "warmup",
    "warmup_cosine",
    "warmup_stable_decay",
]
