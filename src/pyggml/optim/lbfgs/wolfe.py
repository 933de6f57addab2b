# SPDX-License-Identifier: MIT
"""A line search for the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Point", "strong_wolfe"]

# Sufficient decrease and curvature, as Nocedal and Wright advise for quasi-Newton methods.
_DECREASE = 1e-4
_CURVATURE = 0.9


@dataclass
class Point:
    """A place on the line.

    Args:
        t: distance, in lengths of the direction.
        loss: the function there.
        slope: its derivative along the line.
        grad: what stands for the whole gradient there.
    """

    t: float
    loss: float
    slope: float
    grad: Any


def strong_wolfe(
    evaluate: Callable[..., Point],
    start: Point,
    t: float,
    longest: float,
    tolerance: float,
    most: int,
) -> tuple[Point, int]:
    """Find a step with enough decrease, where the slope has become flat enough.

    Where the function is not finite, the step is halved until it is.

    Args:
        evaluate: gives the point at a distance; the points that come after it are still needed,
            as the start always is.
        start: the point at 0, whose slope is negative.
        t: first distance to try.
        longest: largest element of the direction.
        tolerance: an interval that moves no element by more is small enough.
        most: evaluations that may be done after the first.

    Returns:
        The best point found, and the number of evaluations.

    Source: Nocedal and Wright 2006, algorithms 3.5 and 3.6; with the safeguards of minFunc, as
        torch.optim.LBFGS has them.
    """
    before, tries, bracket = start, 0, None
    point = evaluate(t)
    evaluations = 1
    while tries < most:
        if not math.isfinite(point.loss) or not math.isfinite(point.slope):
            point = evaluate(0.5 * (before.t + point.t), before)
        elif _too_high(point, start) or (tries > 1 and point.loss >= before.loss):
            bracket = [before, point]
            break
        elif abs(point.slope) <= -_CURVATURE * start.slope:
            return point, evaluations
        elif point.slope >= 0:
            bracket = [before, point]
            break
        else:
            nearest = point.t + 0.01 * (point.t - before.t)
            t = _cubic_minimum(before, point, nearest, point.t * 10)
            before, point = point, evaluate(t, point)
        evaluations += 1
        tries += 1
    if bracket is None:
        bracket = [start, point]
    found, more = _zoom(evaluate, start, bracket, longest, tolerance, most - tries)
    return found, evaluations + more


def _zoom(
    evaluate: Callable[..., Point],
    start: Point,
    bracket: list[Point],
    longest: float,
    tolerance: float,
    most: int,
) -> tuple[Point, int]:
    """Narrow an interval that holds a point that satisfies the conditions."""
    low, high = sorted(bracket, key=_height)
    was_near, count = False, 0
    while count < most and abs(high.t - low.t) * longest >= tolerance:
        left, right = (low, high) if low.t <= high.t else (high, low)
        t = _cubic_minimum(left, right, left.t, right.t)
        # Twice beside an end is no progress: the next try stays a tenth away from it.
        margin = 0.1 * (right.t - left.t)
        near = min(right.t - t, t - left.t) < margin
        if near and (was_near or t >= right.t or t <= left.t):
            t = right.t - margin if abs(t - right.t) < abs(t - left.t) else left.t + margin
            near = False
        was_near = near
        point = evaluate(t, low, high)
        count += 1
        if not math.isfinite(point.loss) or _too_high(point, start) or point.loss >= low.loss:
            high = point
            low, high = sorted((low, high), key=_height)
            continue
        if abs(point.slope) <= -_CURVATURE * start.slope:
            return point, count
        if point.slope * (high.t - low.t) >= 0:
            high = low
        low = point
    return low, count


def _height(point: Point) -> float:
    return point.loss if math.isfinite(point.loss) else math.inf


def _too_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + _DECREASE * point.t * start.slope


def _cubic_minimum(a: Point, b: Point, least: float, most: float) -> float:
    """Return the minimum of the cubic through two points and their slopes, within bounds."""
    if a.t == b.t or not all(map(math.isfinite, (a.loss, b.loss, a.slope, b.slope))):
        return 0.5 * (least + most)
    left, right = (a, b) if a.t <= b.t else (b, a)
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return 0.5 * (least + most)
    root = math.sqrt(square)
    below = right.slope - left.slope + 2 * root
    if below == 0:
        return 0.5 * (least + most)
    t = right.t - (right.t - left.t) * ((right.slope + root - d1) / below)
    return min(max(t, least), most)
