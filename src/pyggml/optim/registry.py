# SPDX-License-Identifier: MIT
"""The optimizers and schedules by name, for configurations and command lines."""

from __future__ import annotations

from collections.abc import Callable

from .adafactor import Adafactor
from .adamw import Adam, AdamW
from .adamw8bit import AdamW8bit
from .lbfgs.lbfgs import LBFGS
from .lion import Lion
from .muon import Muon
from .optimizer import Optimizer
from .rmsprop import Adagrad, RMSprop
from .schedules import schedules
from .sgd import SGD

__all__ = ["optimizers", "schedule_functions"]

_CLASSES: tuple[type[Optimizer], ...] = (
    *(SGD, Adam, AdamW, AdamW8bit, RMSprop, Adagrad),
    *(Adafactor, Lion, Muon, LBFGS),
)
# These put schedules together.
_NOT_OF_NUMBERS = ("Schedule", "join", "warmup")


def optimizers() -> dict[str, type[Optimizer]]:
    """The optimizers by their names in lower case, such as "adamw".

    Example:
        >>> optimizers()["adamw"].__name__
        'AdamW'
    """
    return {kind.__name__.lower(): kind for kind in _CLASSES}


def schedule_functions() -> dict[str, Callable[..., schedules.Schedule]]:
    """The functions that make schedules of numbers alone, by their names, such as "warmup_cosine".

    Example:
        >>> schedule_functions()["constant"](0.5)(7)
        0.5
    """
    names = [name for name in schedules.__all__ if name not in _NOT_OF_NUMBERS]
    return {name: getattr(schedules, name) for name in names}
