# SPDX-License-Identifier: MIT
"""Learning-rate schedules."""

from .adaptive import Joined, is_adaptive, update_schedule
from .curves import (
    Schedule,
    constant,
    cosine,
    cosine_restarts,
    linear,
    one_cycle,
    polynomial,
)
from .plateau import ReduceOnPlateau
from .warmups import inverse_sqrt, join, warmup, warmup_cosine, warmup_stable_decay

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
