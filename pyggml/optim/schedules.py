# SPDX-License-Identifier: MIT
"""Schedules: closures from a step, counted from 0, to a value such as the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

__all__ = ["Schedule", "constant", "cosine", "join", "linear", "warmup_cosine"]

Schedule = Callable[[int], float]


def constant(value: float) -> Schedule:
    """Return `value` at every step.

    Example:
        >>> constant(0.1)(7)
        0.1
    """
    return lambda step: value


def linear(start: float, end: float, steps: int) -> Schedule:
    """Go straight from `start` at step 0 to `end` at step `steps`, then stay.

    Args:
        start: first value.
        end: last value.
        steps: length of the way, >= 1.

    Raises:
        ValueError: steps is not positive.

    Example:
        >>> [linear(0.0, 1.0, 4)(step) for step in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """
    _check_steps("linear", "steps", steps, 1)
    return lambda step: start + (end - start) * min(max(step, 0) / steps, 1.0)


def cosine(start: float, steps: int, end: float = 0.0) -> Schedule:
    """Fall from `start` at step 0 to `end` at step `steps` along half a cosine, then stay.

    Args:
        start: first value.
        steps: length of the way, >= 1.
        end: last value.

    Raises:
        ValueError: steps is not positive.

    Source: Loshchilov and Hutter 2017, arXiv:1608.03983.

    Example:
        >>> [round(cosine(1.0, 4)(step), 3) for step in (0, 2, 4, 9)]
        [1.0, 0.5, 0.0, 0.0]
    """
    _check_steps("cosine", "steps", steps, 1)

    def value(step: int) -> float:
        done = min(max(step, 0) / steps, 1.0)
        return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * done))

    return value


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
    _check_steps("warmup_cosine", "warmup_steps", warmup_steps, 0)
    _check_steps("warmup_cosine", "total_steps", total_steps, 1)
    rise = linear(peak / (warmup_steps + 1), peak, max(warmup_steps, 1))
    if warmup_steps >= total_steps:
        return rise
    fall = cosine(peak, total_steps - warmup_steps, end)
    return join([rise, fall], [warmup_steps])


def join(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Run one schedule after another, each counting from 0 at its own start.

    Args:
        schedules: in order.
        boundaries: first step of each but the first, rising.

    Raises:
        ValueError: the boundaries are not one fewer than the schedules, or do not rise.

    Example:
        >>> both = join([constant(1.0), linear(1.0, 0.0, 2)], [10])
        >>> [both(step) for step in (9, 10, 11, 12)]
        [1.0, 1.0, 0.5, 0.0]
    """
    if len(boundaries) != len(schedules) - 1:
        raise ValueError(
            "join: boundaries must be one fewer than schedules; "
            f"got {len(boundaries)} boundaries, {len(schedules)} schedules"
        )
    if any(b < a for a, b in pairwise(boundaries)):
        raise ValueError(f"join: boundaries must rise; got {list(boundaries)}")

    def value(step: int) -> float:
        current = sum(step >= boundary for boundary in boundaries)
        return schedules[current](step - (boundaries[current - 1] if current else 0))

    return value


def _check_steps(where: str, name: str, value: int, least: int) -> None:
    """Raise a ValueError unless `value` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{where}: {name} must be an integer >= {least}; got {value!r}")
