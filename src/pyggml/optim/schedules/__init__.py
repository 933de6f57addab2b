# SPDX-License-Identifier: MIT
"""Learning-rate schedules."""

from typing import TYPE_CHECKING

from ...absent import absent_in
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

if not TYPE_CHECKING:  # type checkers go on reporting absent names
    __getattr__ = absent_in("schedules", __name__)
