# SPDX-License-Identifier: MIT
"""The schedule of a run's learning rate, made of its options and checked at every step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..checks import F32_MAX, number
from ..errors import ConfigError, ConfigTypeError, reason
from ..optim import ReduceOnPlateau, schedule_functions, schedules
from .options import PLATEAU, RISING, TrainerOptions

__all__ = ["check_rates", "check_schedule_options", "make_schedule", "rates_in_force"]

_MOST_CHECKED = 10**5
# Stands for the length of a run that is not known yet.
_MANY_STEPS = 10**9
# The arguments of schedules that are rates and lengths, by their names.
_RATES = ("value", "start", "peak")
_LENGTHS = ("steps", "total_steps")
# The part of a run in which the rate falls in the end, where nothing says otherwise.
_DECAY_PART = 5


def make_schedule(options: TrainerOptions, lr: float, total_steps: int) -> Callable[[int], float]:
    """Make a schedule: by default linear warm-up, then a cosine down to the lowest rate.

    A schedule without a warm-up of its own gets one, and runs for the rest of the steps;
    `one_cycle` rises by itself.

    Args:
        options: the schedule, its lowest rate, and the length of the warm-up.
        lr: highest rate.
        total_steps: steps of the whole run.

    Raises:
        ConfigError: the warm-up is longer than the run, the lowest rate is above the highest, or
            the schedule's options do not suit it.
    """
    who = "Trainer"
    if options.warmup is not None and options.warmup > total_steps:
        raise ConfigError(
            f"{who}: `warmup` must not exceed the run's {total_steps} steps; got {options.warmup}: "
            "lower it, or give more `steps`"
        )
    if options.min_lr is not None and options.min_lr > lr:
        raise ConfigError(
            f"{who}: `min_lr` must be at most `lr`={lr:g}; got {options.min_lr:g}: lower it"
        )
    warmup = int(rates_in_force(options, lr, total_steps)["warmup"])
    schedule = _make(options, lr, warmup, total_steps)
    try:
        check_rates("", schedule, total_steps)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{who}: `schedule`={options.value('schedule')}: {error}") from error
    return schedule


def rates_in_force(options: TrainerOptions, lr: float, total_steps: int) -> dict[str, float]:
    """Return the lowest rate and the steps of the warm-up, as given or as they are chosen.

    Args:
        options: of the run.
        lr: highest rate.
        total_steps: steps of the whole run.

    Example:
        >>> rates_in_force(TrainerOptions(warmup=5), 1e-2, 100)
        {'warmup': 5, 'min_lr': 0.001}
    """
    return {
        "warmup": min(100, total_steps // 20) if options.warmup is None else options.warmup,
        "min_lr": lr / 10 if options.min_lr is None else options.min_lr,
    }


def check_schedule_options(options: TrainerOptions) -> None:
    """Raise if the schedule does not take its options, before the length of the run is known.

    Args:
        options: the schedule and its options.

    Raises:
        ConfigError: names the argument.

    Example:
        >>> check_schedule_options(TrainerOptions(schedule="cosine"))
    """
    if options.schedule_options:
        _make(options, options.lr or 1.0, options.warmup or 0, options.steps or _MANY_STEPS)


def _make(
    options: TrainerOptions, lr: float, warmup: int, total_steps: int
) -> Callable[[int], float]:
    """Make the schedule, and raise `ConfigError` if its options do not suit it."""
    try:
        return _make_of(options, lr, warmup, total_steps)
    except (ValueError, TypeError) as error:
        named = "`schedule_options` of " if options.schedule_options else "`schedule`="
        named += options.value("schedule")
        kind = ConfigTypeError if isinstance(error, TypeError) else ConfigError
        raise kind(f"Trainer: {named}: {reason(error)}") from error


def _make_of(
    options: TrainerOptions, lr: float, warmup: int, total_steps: int
) -> Callable[[int], float]:
    """Make the schedule with its arguments, named options first."""
    min_lr = rates_in_force(options, lr, total_steps)["min_lr"]
    given = dict(options.schedule_options)
    name = options.value("schedule")
    if name == PLATEAU:
        given = {"least": min_lr, **given}
        return ReduceOnPlateau(schedules.warmup(schedules.constant(lr), warmup), **given)
    make = schedule_functions()[name]
    takes = inspect.signature(make).parameters
    rises = "warmup_steps" in takes or name in RISING
    rest = total_steps if rises else max(1, total_steps - warmup)
    chosen: dict[str, Any] = {"end": min_lr, "warmup_steps": warmup}
    chosen |= dict.fromkeys(_RATES, lr) | dict.fromkeys(_LENGTHS, rest)
    chosen["decay_steps"] = max(1, min(total_steps // _DECAY_PART, total_steps - warmup))
    found = make(**{**{name: chosen[name] for name in takes if name in chosen}, **given})
    return found if rises else schedules.warmup(found, warmup)


def check_rates(who: str, schedule: Callable[[int], float], total_steps: int) -> None:
    """Raise if a schedule gives no learning rate at some step, before the first one is done.

    Args:
        who: beginning of the message.
        schedule: step -> learning rate.
        total_steps: steps of the run. Of very many, some that lie evenly are checked.

    Raises:
        ValueError: names the step and the rate.
        TypeError: the same, where the rate is not a number.

    Example:
        >>> check_rates("Trainer: ", lambda step: 0.1, 1000)
    """
    count = min(total_steps, _MOST_CHECKED)
    for n in range(count):
        step = n if count == total_steps else n * (total_steps - 1) // (count - 1)
        kind: type[Exception] = ValueError
        try:
            rate = schedule(step)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            said = f"it raises {type(error).__name__}: {error}"
        else:
            try:
                number("", "", rate, 0, F32_MAX)
                continue
            except (ValueError, TypeError) as error:
                kind, said = type(error), f"it gives {rate!r:.60}"
        raise kind(
            f"{who}the learning rate must be a finite number >= 0 at every step; the schedule's at "
            f"step {step} of {total_steps} is none: {said}; give it other arguments"
        )
