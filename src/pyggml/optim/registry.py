# SPDX-License-Identifier: MIT
"""The optimizers and schedules by name, for configurations and command lines."""

from __future__ import annotations

from collections.abc import Callable

from . import schedules
from .adafactor import Adafactor
from .adamw import Adam, AdamW
from .adamw8bit import AdamW8bit
from .lbfgs.lbfgs import LBFGS
from .lion import Lion
from .muon import Muon
from .optimizer import Optimizer
from .rmsprop import Adagrad, RMSprop
from .sgd import SGD

__all__ = ["optimizers", "schedule_functions"]

_CLASSES: tuple[type[Optimizer], ...] = (
    *(SGD, Adam, AdamW, AdamW8bit, RMSprop, Adagrad),
    *(Adafactor, Lion, Muon, LBFGS),
)
_SCHEDULES = (
    *(schedules.constant, schedules.linear, schedules.cosine, schedules.cosine_restarts),
    *(schedules.polynomial, schedules.inverse_sqrt, schedules.one_cycle),
    *(schedules.warmup_cosine, schedules.warmup_stable_decay),
)


def optimizers() -> dict[str, type[Optimizer]]:
    """Return the optimizers by their names in lower case, such as "adamw".

    Example:
        >>> optimizers()["adamw"].__name__
        'AdamW'
    """
    return {kind.__name__.lower(): kind for kind in _CLASSES}


def schedule_functions() -> dict[str, Callable[..., schedules.Schedule]]:
    """Return by name the functions that make a schedule from numbers only.

    Example:
        >>> schedule_functions()["constant"](0.5)(7)
        0.5
    """
    return {make.__name__: make for make in _SCHEDULES}
