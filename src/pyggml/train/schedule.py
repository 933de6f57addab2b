# SPDX-License-Identifier: MIT
"""How long a run is, how often it stops to look, and its rates on the way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..optim import ReduceOnPlateau, schedule_functions, schedules
from .checks import PLATEAU, ConfigError
from .need import need_number

if TYPE_CHECKING:
    from .config import TrainConfig

__all__ = ["DEFAULT_STEPS", "check_rates", "default_schedule", "interval"]

DEFAULT_STEPS = 1000
_MOST_LOOKED_AT = 10**5
_FLOAT32_MAX = float(2**128 - 2**104)
# What a schedule's arguments stand for, by their names.
_RATES = ("value", "start", "peak")
_LENGTHS = ("steps", "total_steps")
# The part of a run in which the rate falls in the end, where nothing says otherwise.
_DECAY_PART = 5


def default_schedule(config: TrainConfig, total_steps: int) -> Callable[[int], float]:
    """The run's learning rate: by default linear warm-up, then a cosine down to the lowest rate.

    A schedule without a warm-up of its own gets one, and runs for the rest of the steps; but for
    `one_cycle`, which rises by itself.

    Args:
        config: the schedule, its rates, and the length of the warm-up.
        total_steps: steps of the whole run.

    Raises:
        ConfigError: the warm-up is longer than the run, or the options do not suit the schedule, or
            make it give what is no rate.
    """
    if config.warmup is not None and config.warmup > total_steps:
        raise ConfigError(
            f"--warmup must not exceed the run's {total_steps} steps; got {config.warmup}: "
            "lower it, or give more --steps"
        )
    warmup = min(100, total_steps // 20) if config.warmup is None else config.warmup
    try:
        schedule = _make(config, warmup, total_steps)
        check_rates("", schedule, total_steps)
        return schedule
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--schedule {config.schedule}: {error}") from error


def _make(config: TrainConfig, warmup: int, total_steps: int) -> Callable[[int], float]:
    """The schedule with its arguments, named options first."""
    min_lr = config.lr / 10 if config.min_lr is None else config.min_lr
    options = dict(config.schedule_options)
    if config.schedule == PLATEAU:
        options = {"least": min_lr, **options}
        return ReduceOnPlateau(schedules.warmup(schedules.constant(config.lr), warmup), **options)
    make = schedule_functions()[config.schedule]
    takes = inspect.signature(make).parameters
    rises = "warmup_steps" in takes or config.schedule == "one_cycle"
    rest = total_steps if rises else max(1, total_steps - warmup)
    chosen: dict[str, Any] = {"end": min_lr, "warmup_steps": warmup}
    chosen |= dict.fromkeys(_RATES, config.lr) | dict.fromkeys(_LENGTHS, rest)
    chosen["decay_steps"] = max(1, min(total_steps // _DECAY_PART, total_steps - warmup))
    found = make(**{**{name: chosen[name] for name in takes if name in chosen}, **options})
    return found if rises else schedules.warmup(found, warmup)


def check_rates(who: str, schedule: Callable[[int], float], total_steps: int) -> None:
    """Refuse a schedule that gives no learning rate at some step, before the first one is done.

    Args:
        who: what the message begins with.
        schedule: step -> learning rate.
        total_steps: of the run. Of very many, some that lie evenly are looked at.

    Raises:
        ValueError: names the step, and what came.
        TypeError: the same, where that is no number.

    Example:
        >>> check_rates("Trainer: ", lambda step: 0.1, 1000)
    """
    count = min(total_steps, _MOST_LOOKED_AT)
    for n in range(count):
        step = n if count == total_steps else n * (total_steps - 1) // (count - 1)
        kind: type[Exception] = ValueError
        try:
            rate = schedule(step)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            said = f"it raises {type(error).__name__}: {error}"
        else:
            try:
                need_number("", "", rate, most=_FLOAT32_MAX)
                continue
            except (ValueError, TypeError) as error:
                kind, said = type(error), f"it gives {rate!r:.60}"
        raise kind(
            f"{who}the learning rate must be a finite number >= 0 at every step; the schedule's at "
            f"step {step} of {total_steps} is none: {said}; give it other arguments"
        )


def interval(value: int | None, total_steps: int, parts: int) -> int:
    """An interval in steps: as given, or so that the run has so many parts.

    Args:
        value: as given.
        total_steps: of the run.
        parts: how many.

    Example:
        >>> interval(None, 100, 5), interval(7, 100, 5)
        (20, 7)
    """
    return max(1, total_steps // parts) if value is None else value
