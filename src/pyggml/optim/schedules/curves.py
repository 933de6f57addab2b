# SPDX-License-Identifier: MIT
"""Schedules of one piece: closures from a step, counted from 0, to a value such as the rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ... import checks

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "cosine_restarts",
    "done",
    "from_start",
    "linear",
    "one_cycle",
    "polynomial",
]

Schedule = Callable[[int], float]
"""A function of the step, counted from 0, that returns a value such as the learning rate.

Those made here are closures, which pickle does not take: send the arguments to another process, and
make the schedule there. A checkpoint needs only the optimizer's step.
"""


def constant(value: float) -> Schedule:
    """Return `value` at every step.

    Args:
        value: the value.

    Raises:
        ValueError: value is no finite number.

    Example:
        >>> constant(0.1)(7)
        0.1
    """
    value = checks.number("constant", "value", value)
    return lambda step: value


def linear(start: float, end: float, steps: int) -> Schedule:
    """Go straight from `start` at step 0 to `end` at step `steps`, then stay.

    Args:
        start: first value.
        end: last value.
        steps: length of the way, >= 1.

    Raises:
        ValueError: steps is not positive, or a value is no finite number.

    Example:
        >>> [linear(0.0, 1.0, 4)(step) for step in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """
    steps = checks.whole("linear", "steps", steps, 1)
    start, end = checks.number("linear", "start", start), checks.number("linear", "end", end)
    return lambda step: start + (end - start) * done(step, steps)


def cosine(start: float, steps: int, end: float = 0.0) -> Schedule:
    """Fall from `start` at step 0 to `end` at step `steps` along half a cosine, then stay.

    Args:
        start: first value.
        steps: length of the way, >= 1.
        end: last value.

    Raises:
        ValueError: steps is not positive, or a value is no finite number.

    Source: Loshchilov and Hutter 2017, arXiv:1608.03983.

    Example:
        >>> [round(cosine(1.0, 4)(step), 3) for step in (0, 2, 4, 9)]
        [1.0, 0.5, 0.0, 0.0]
    """
    steps = checks.whole("cosine", "steps", steps, 1)
    start, end = checks.number("cosine", "start", start), checks.number("cosine", "end", end)

    def value(step: int) -> float:
        return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * done(step, steps)))

    return value


def cosine_restarts(
    start: float, steps: int, end: float = 0.0, growth: int = 1, shrink: float = 1.0
) -> Schedule:
    """Fall along half a cosine again and again, each time `growth` times as long.

    Args:
        start: value at the beginning of the first fall.
        steps: length of the first fall, >= 1.
        end: what each fall approaches.
        growth: factor on the length from one fall to the next, >= 1.
        shrink: factor on start - end from one fall to the next, in (0, 1].

    Raises:
        ValueError: steps or growth is not a positive integer, or shrink is out of range.

    Source: Loshchilov and Hutter 2017, arXiv:1608.03983; CosineAnnealingWarmRestarts of PyTorch.

    Example:
        >>> lr = cosine_restarts(1.0, 2, growth=2)
        >>> [round(lr(step), 3) for step in (0, 1, 2, 4, 6)]
        [1.0, 0.5, 1.0, 0.5, 1.0]
    """
    who = "cosine_restarts"
    steps = checks.whole(who, "steps", steps, 1)
    growth = checks.whole(who, "growth", growth, 1)
    start, end = checks.number(who, "start", start), checks.number(who, "end", end)
    shrink = checks.number(who, "shrink", shrink, most=1.0, above=0.0)

    def value(step: int) -> float:
        step, length, cycle = int(from_start(step)), steps, 0
        if growth == 1:
            cycle, step = divmod(step, steps)
        else:
            while step >= length:
                step, length, cycle = step - length, length * growth, cycle + 1
        high = end + (start - end) * shrink**cycle
        return cosine(high, length, end)(step)

    return value


def polynomial(start: float, steps: int, end: float = 0.0, power: float = 1.0) -> Schedule:
    """Fall as end + (start - end) * (1 - step / steps)^power, then stay.

    Args:
        start: first value.
        steps: length of the way, >= 1.
        end: last value.
        power: above 1 the fall is steep first; > 0.

    Raises:
        ValueError: steps or power is not positive.

    Source: torch.optim.lr_scheduler.PolynomialLR.

    Example:
        >>> [polynomial(1.0, 4, power=2.0)(step) for step in (0, 2, 4, 9)]
        [1.0, 0.25, 0.0, 0.0]
    """
    who = "polynomial"
    steps, power = (
        checks.whole(who, "steps", steps, 1),
        checks.number(who, "power", power, above=0.0),
    )
    start, end = checks.number(who, "start", start), checks.number(who, "end", end)
    return lambda step: end + (start - end) * (1.0 - done(step, steps)) ** power


def one_cycle(
    peak: float,
    total_steps: int,
    rise: float = 0.3,
    start_divisor: float = 25.0,
    end_divisor: float = 1e4,
) -> Schedule:
    """Rise along half a cosine to `peak`, then fall along another to almost nothing.

    Args:
        peak: highest value.
        total_steps: steps of the run, >= 3; the last value is at step total_steps - 1, and stays.
        rise: fraction of the run before the peak, in (0, 1); the rise takes at least one step.
        start_divisor: the first value is peak / start_divisor, > 0.
        end_divisor: the last value is the first over this, > 0.

    Raises:
        ValueError: a number is out of range.

    Source: Smith and Topin 2019, arXiv:1708.07120; torch.optim.lr_scheduler.OneCycleLR.

    Example:
        >>> lr = one_cycle(1.0, 11, rise=0.5, start_divisor=10.0, end_divisor=10.0)
        >>> [round(lr(step), 3) for step in (0, 10)]
        [0.1, 0.01]
    """
    who = "one_cycle"
    peak = checks.number(who, "peak", peak)
    total_steps = checks.whole(who, "total_steps", total_steps, 3)
    rise = checks.number(who, "rise", rise, above=0.0, below=1.0)
    start_divisor = checks.number(who, "start_divisor", start_divisor, above=0.0)
    end_divisor = checks.number(who, "end_divisor", end_divisor, above=0.0)
    first = peak / start_divisor
    last, top, final = total_steps - 1, rise * total_steps - 1.0, first / end_divisor
    # The peak may lie between two steps, as PyTorch has it; but not before the first.
    top = min(max(top, 1.0), last)

    def between(low: float, high: float, done: float) -> float:
        return high + (low - high) * 0.5 * (1.0 + math.cos(math.pi * done))

    def value(step: int) -> float:
        at = min(from_start(step), last)
        if at <= top:
            return between(first, peak, at / top)
        return between(peak, final, (at - top) / (last - top))

    return value


def done(step: float, steps: int) -> float:
    """Return the share of the schedule that is done at a step, from 0 to 1."""
    return min(from_start(step) / steps, 1.0)


def from_start(step: Any) -> float:
    """Return a step as a number, at least 0."""
    return max(checks.number("schedule", "step", step), 0.0)
