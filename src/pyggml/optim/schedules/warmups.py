# SPDX-License-Identifier: MIT
"""Warm-ups before a schedule, and `join`, which runs schedules one after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from ... import checks
from .adaptive import Joined, is_adaptive
from .curves import Schedule, constant, cosine, done, from_start, linear

__all__ = ["inverse_sqrt", "join", "warmup", "warmup_cosine", "warmup_stable_decay"]


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
    parts = checks.items("join", "schedules", schedules)
    for part in parts:
        checks.function("join", "each of schedules", part, "step -> value, such as constant(0.1)")
    steps = checks.items("join", "boundaries", boundaries, len(parts) - 1)
    starts = [0, *(checks.whole("join", "each of boundaries", step, 0) for step in steps)]
    if any(b < a for a, b in pairwise(starts)):
        raise ValueError(f"join: boundaries must rise; got {starts[1:]}")

    def value(step: int) -> float:
        at = from_start(step)
        current = sum(at >= start for start in starts[1:])
        return float(parts[current](step - starts[current]))

    return Joined(value, parts, starts) if any(map(is_adaptive, parts)) else value


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
    warmup_steps = checks.whole("warmup", "warmup_steps", warmup_steps, 0)
    checks.function("warmup", "then", then, "step -> value, such as constant(0.1)")
    peak = checks.number("warmup", "then(0)", then(0))
    rise = linear(peak / (warmup_steps + 1), peak, max(warmup_steps, 1))
    return join([rise, then], [warmup_steps])


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
    peak = checks.number(who, "peak", peak)
    warmup_steps = checks.whole(who, "warmup_steps", warmup_steps, 0)
    timescale = (warmup_steps or 10_000) if timescale is None else timescale
    scale = checks.whole(who, "timescale", timescale, 1)
    return warmup(lambda step: peak / math.sqrt(1.0 + from_start(step) / scale), warmup_steps)


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
    peak, end = checks.number(who, "peak", peak), checks.number(who, "end", end)
    warmup_steps = checks.whole(who, "warmup_steps", warmup_steps, 0)
    total_steps = checks.whole(who, "total_steps", total_steps, 1)
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
    peak, end = checks.number(who, "peak", peak), checks.number(who, "end", end)
    warmup_steps = checks.whole(who, "warmup_steps", warmup_steps, 0)
    decay_steps = checks.whole(who, "decay_steps", decay_steps, 1)
    total_steps = checks.whole(who, "total_steps", total_steps, warmup_steps + decay_steps)
    falls: dict[str, Callable[[], Schedule]] = {
        "linear": lambda: linear(peak, end, decay_steps),
        "cosine": lambda: cosine(peak, decay_steps, end),
        "sqrt": lambda: _sqrt_fall(peak, decay_steps, end),
    }
    fall = falls[checks.choice(who, "shape", shape, falls)]()
    stable = total_steps - decay_steps - warmup_steps
    return warmup(join([constant(peak), fall], [stable]), warmup_steps)


def _sqrt_fall(start: float, steps: int, end: float) -> Schedule:
    return lambda step: start + (end - start) * math.sqrt(done(step, steps))
