# SPDX-License-Identifier: MIT
"""Schedules: closures from a step, counted from 0, to a value such as the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .._check import (
    check_choice,
    check_finite,
    check_positive,
    check_whole,
    is_real,
    items_of,
    shown,
)
from .adaptive import Joined, is_adaptive

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "cosine_restarts",
    "inverse_sqrt",
    "join",
    "linear",
    "one_cycle",
    "polynomial",
    "warmup",
    "warmup_cosine",
    "warmup_stable_decay",
]

Schedule = Callable[[int], float]

# Steps are counted in int64, as they are saved.
_STEP_MAX = 2**63 - 1


def _of_steps(where: str, value: Callable[[Any], float]) -> Schedule:
    """The function, for steps that are numbers; any other step is named."""

    def schedule(step: int) -> float:
        if not is_real(step) or not -_STEP_MAX <= step <= _STEP_MAX:
            raise ValueError(f"{where}: step must be a number, one at a time; got {shown(step)}")
        # NumPy's small types would wrap around, or round what is computed of them.
        return float(value(int(step) if isinstance(step, (int, np.integer)) else float(step)))

    return schedule


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
    value = check_finite("constant", "value", value)
    return _of_steps("constant", lambda step: value)


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
    steps = check_whole("linear", "steps", steps, 1)
    start, end = check_finite("linear", "start", start), check_finite("linear", "end", end)
    return _of_steps("linear", lambda step: start + (end - start) * _done(step, steps))


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
    steps = check_whole("cosine", "steps", steps, 1)
    start, end = check_finite("cosine", "start", start), check_finite("cosine", "end", end)

    def value(step: int) -> float:
        return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * _done(step, steps)))

    return _of_steps("cosine", value)


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
    steps = check_whole(who, "steps", steps, 1)
    growth = check_whole(who, "growth", growth, 1)
    start, end = check_finite(who, "start", start), check_finite(who, "end", end)
    if check_positive(who, "shrink", shrink) > 1.0:
        raise ValueError(f"{who}: shrink must be in (0, 1]; got {shrink}")

    def value(step: int) -> float:
        step, length, cycle = max(step, 0), steps, 0
        if growth == 1:
            cycle, step = divmod(step, steps)
        else:
            while step >= length:
                step, length, cycle = step - length, length * growth, cycle + 1
        high = end + (start - end) * shrink**cycle
        return cosine(high, length, end)(step)

    return _of_steps(who, value)


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
    steps, power = check_whole(who, "steps", steps, 1), check_positive(who, "power", power)
    start, end = check_finite(who, "start", start), check_finite(who, "end", end)
    return _of_steps(who, lambda step: end + (start - end) * (1.0 - _done(step, steps)) ** power)


def inverse_sqrt(peak: float, warmup_steps: int, timescale: int | None = None) -> Schedule:
    """Rise for `warmup_steps`, then fall as peak / sqrt(1 + (step - warmup_steps) / timescale).

    With the default time scale the fall is peak * sqrt(warmup_steps / step).

    Args:
        peak: highest value, at step `warmup_steps`; the rise is that of `warmup`.
        warmup_steps: steps before the peak, >= 0.
        timescale: steps after the peak until the value is peak / sqrt(2); None takes
            warmup_steps, or 10,000 where that is 0.

    Raises:
        ValueError: a number of steps is out of range.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 5.3; Raffel et al. 2020,
        arXiv:1910.10683.

    Example:
        >>> lr = inverse_sqrt(1.0, 3)
        >>> [round(lr(step), 3) for step in (0, 3, 12)]
        [0.25, 1.0, 0.5]
    """
    who = "inverse_sqrt"
    peak = check_finite(who, "peak", peak)
    warmup_steps = check_whole(who, "warmup_steps", warmup_steps)
    scale = check_whole(
        who, "timescale", (warmup_steps or 10_000) if timescale is None else timescale, 1
    )
    fall = _of_steps(who, lambda step: peak / math.sqrt(1.0 + max(step, 0) / scale))
    return warmup(fall, warmup_steps)


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
    peak = check_finite(who, "peak", peak)
    total_steps = check_whole(who, "total_steps", total_steps, 3)
    if not is_real(rise) or not 0.0 < rise < 1.0:
        raise ValueError(f"{who}: rise must be in (0, 1); got {rise!r}")
    start_divisor = check_positive(who, "start_divisor", start_divisor)
    end_divisor = check_positive(who, "end_divisor", end_divisor)
    first = peak / start_divisor
    last, top, final = total_steps - 1, rise * total_steps - 1.0, first / end_divisor
    # The peak may lie between two steps, as PyTorch has it; but not before the first.
    top = min(max(top, 1.0), last)

    def between(low: float, high: float, done: float) -> float:
        return high + (low - high) * 0.5 * (1.0 + math.cos(math.pi * done))

    def value(step: int) -> float:
        step = min(max(step, 0), last)
        if step <= top:
            return between(first, peak, step / top)
        return between(peak, final, (step - top) / (last - top))

    return _of_steps(who, value)


def warmup(then: Schedule, warmup_steps: int) -> Schedule:
    """Rise for `warmup_steps` to where another schedule begins, and go on with it.

    The rise is then(0) * (step + 1) / (warmup_steps + 1): the first step already moves. A
    `ReduceOnPlateau` hears of nothing before it begins; put around the warm-up, it does.

    Args:
        then: what follows, counting from 0 at step `warmup_steps`.
        warmup_steps: steps before it, >= 0.

    Raises:
        ValueError: warmup_steps is not a whole number from 0, or then(0) no finite number.
        TypeError: then is no schedule.

    Example:
        >>> lr = warmup(linear(1.0, 0.0, 2), 3)
        >>> [lr(step) for step in range(6)]
        [0.25, 0.5, 0.75, 1.0, 0.5, 0.0]
    """
    warmup_steps = check_whole("warmup", "warmup_steps", warmup_steps)
    if not callable(then):
        raise TypeError(
            f"warmup: then must be a schedule; got {type(then).__name__}; for one value give "
            "constant(value)"
        )
    peak = check_finite("warmup", "then(0)", then(0))
    rise = linear(peak / (warmup_steps + 1), peak, max(warmup_steps, 1))
    return join([rise, then], [warmup_steps])


def warmup_cosine(peak: float, warmup_steps: int, total_steps: int, end: float = 0.0) -> Schedule:
    """Rise for `warmup_steps`, then fall along a cosine to `end` at `total_steps`.

    The rise is peak * (step + 1) / (warmup_steps + 1): the first step already moves, and the
    peak is reached at step `warmup_steps`.

    Args:
        peak: highest value.
        warmup_steps: steps before the peak, >= 0; at least total_steps means no fall.
        total_steps: steps until `end`, >= 1.
        end: last value.

    Raises:
        ValueError: a number of steps is out of range.

    Example:
        >>> lr = warmup_cosine(1.0, 3, 7)
        >>> [round(lr(step), 3) for step in (0, 1, 3, 5, 7)]
        [0.25, 0.5, 1.0, 0.5, 0.0]
    """
    who = "warmup_cosine"
    peak, end = check_finite(who, "peak", peak), check_finite(who, "end", end)
    warmup_steps = check_whole(who, "warmup_steps", warmup_steps)
    total_steps = check_whole(who, "total_steps", total_steps, 1)
    if warmup_steps >= total_steps:
        return warmup(constant(peak), warmup_steps)
    return warmup(cosine(peak, total_steps - warmup_steps, end), warmup_steps)


def warmup_stable_decay(
    peak: float,
    warmup_steps: int,
    total_steps: int,
    decay_steps: int,
    end: float = 0.0,
    shape: str = "linear",
) -> Schedule:
    """Rise, stay at `peak`, and fall in the last `decay_steps` only.

    A run can go on from a checkpoint before the fall: its length need not be known.

    Args:
        peak: highest value; the rise is that of `warmup`.
        warmup_steps: steps before the peak, >= 0.
        total_steps: steps until `end`, at least warmup_steps + decay_steps.
        decay_steps: length of the fall, >= 1.
        end: last value.
        shape: "linear", "cosine", or "sqrt": peak + (end - peak) * sqrt(fraction of the fall).

    Raises:
        ValueError: a number of steps is out of range, or another shape.

    Source: Hu et al. 2024, arXiv:2404.06395; the falls: Hägele et al. 2024, arXiv:2405.18392.

    Example:
        >>> lr = warmup_stable_decay(1.0, 1, 10, 4)
        >>> [lr(step) for step in (0, 1, 6, 8, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    who = "warmup_stable_decay"
    peak, end = check_finite(who, "peak", peak), check_finite(who, "end", end)
    warmup_steps = check_whole(who, "warmup_steps", warmup_steps)
    decay_steps = check_whole(who, "decay_steps", decay_steps, 1)
    total_steps = check_whole(who, "total_steps", total_steps, warmup_steps + decay_steps)
    falls: dict[str, Callable[[], Schedule]] = {
        "linear": lambda: linear(peak, end, decay_steps),
        "cosine": lambda: cosine(peak, decay_steps, end),
        "sqrt": lambda: _sqrt_fall(peak, decay_steps, end),
    }
    fall = falls[check_choice(who, "shape", shape, falls)]()
    stable = total_steps - decay_steps - warmup_steps
    return warmup(join([constant(peak), fall], [stable]), warmup_steps)


def _sqrt_fall(start: float, steps: int, end: float) -> Schedule:
    return lambda step: start + (end - start) * math.sqrt(_done(step, steps))


def _done(step: Any, steps: int) -> float:
    """How much of the way is behind a step, from 0 to 1."""
    return min(max(float(step), 0.0) / steps, 1.0)


def join(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Run one schedule after another, each counting from 0 at its own start.

    A part that is a `ReduceOnPlateau` hears of the measures while it is in force; what is returned
    has its `update`, `state_dict` and `load_state_dict` then.

    Args:
        schedules: in order.
        boundaries: first step of each but the first, rising.

    Raises:
        ValueError: the boundaries are not one fewer than the schedules, no integers, or do not
            rise.
        TypeError: schedules is no list of schedules.

    Example:
        >>> both = join([constant(1.0), linear(1.0, 0.0, 2)], [10])
        >>> [both(step) for step in (9, 10, 11, 12)]
        [1.0, 1.0, 0.5, 0.0]
    """
    parts: list[Schedule] | None = items_of(schedules)
    if parts is None or not all(map(callable, parts)):
        raise TypeError(
            f"join: schedules must be a list of schedules; got {shown(schedules)}; for one value "
            "give constant(value)"
        )
    steps = items_of(boundaries)
    if steps is None or len(steps) != len(parts) - 1:
        came = shown(boundaries) if steps is None else f"{len(steps)} boundaries"
        raise ValueError(
            f"join: boundaries must be a list, one fewer than schedules; got {came}, "
            f"{len(parts)} schedules"
        )
    starts = [0, *(check_whole("join", "a boundary", step) for step in steps)]
    if any(b < a for a, b in pairwise(starts)):
        raise ValueError(f"join: boundaries must rise; got {starts[1:]}")

    def value(step: int) -> float:
        current = sum(step >= start for start in starts[1:])
        return parts[current](step - starts[current])

    joined = _of_steps("join", value)
    return Joined(joined, parts, starts) if any(map(is_adaptive, parts)) else joined
