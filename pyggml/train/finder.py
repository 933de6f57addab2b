# SPDX-License-Identifier: MIT
"""The learning-rate range test: rates that grow step by step, and the losses that they bring."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .step import Batch, NonFiniteError, TrainStep

__all__ = ["LRFinding", "find_lr"]

# A loss so many times the lowest is not coming back.
_DIVERGED = 4.0
# Weight of the past in the smoothed loss; its first values are corrected for it.
_SMOOTHING = 0.9
# Fewer steps show no slope.
_STEPS_LEAST = 5


@dataclass(frozen=True)
class LRFinding:
    """What a range test found.

    Args:
        rates: tried, rising.
        losses: of the steps at these rates.
        smoothed: the losses, smoothed.
        suggested: the rate at which the loss falls fastest.
        lowest: the rate of the lowest loss; a training at it is about to diverge.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggested: float
    lowest: float


def find_lr(
    model: Any,
    optimizer: Any,
    batches: Iterable[Batch],
    *,
    start: float = 1e-6,
    end: float = 1.0,
    steps: int = 100,
    step: TrainStep | None = None,
) -> LRFinding:
    """Train for a while at rates that grow, and see at which the loss falls fastest.

    The test ends when the loss diverges. Model and optimizer are then put back to what they were.

    Args:
        model: trained, and restored.
        optimizer: over its parameters; restored, too.
        batches: at least as many as steps, or endless; a loader is not moved back.
        start: lowest rate, > 0.
        end: highest rate, above start.
        steps: rates between the two, evenly spread on a logarithmic scale, >= 5.
        step: how to take a step; None makes a `TrainStep` without clipping.

    Raises:
        ValueError: a number is out of range, the batches end too early, or the loss diverges
            within five steps.

    Source: Smith 2017, arXiv:1506.01186; the smoothing and the choice are fastai's.

    Example:
        >>> find_lr(model, AdamW(model.parameters()), loader).suggested
        0.0021
    """
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    if not whole or steps < _STEPS_LEAST:
        raise ValueError(f"find_lr: steps must be an integer >= {_STEPS_LEAST}; got {steps!r}")
    if not 0 < start < end < math.inf:
        raise ValueError(f"find_lr: needs 0 < start < end; got start={start}, end={end}")
    step = step or TrainStep(model, optimizer)
    weights, state, runs = model.state_dict(), optimizer.state_dict(), step.runs
    rates = np.geomspace(start, end, steps).tolist()
    try:
        losses = _losses(step, iter(batches), rates)
    finally:
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        step.runs = runs
        if not optimizer.fused_update:
            optimizer.zero_grad()
    if len(losses) < _STEPS_LEAST:
        raise ValueError(
            f"find_lr: the loss diverged after {len(losses)} steps, at the rate "
            f"{rates[min(len(losses), steps - 1)]:.3g}; got start={start}: begin lower"
        )
    smoothed = _smooth(losses)
    rates = rates[: len(losses)]
    lowest = int(np.argmin(smoothed))
    slopes = np.gradient(smoothed, np.log(rates))
    # What falls behind the lowest loss, after a rise, is noise.
    steepest = int(np.argmin(slopes[: max(lowest, 1)]))
    return LRFinding(tuple(rates), tuple(losses), tuple(smoothed), rates[steepest], rates[lowest])


def _losses(step: TrainStep, batches: Any, rates: list[float]) -> list[float]:
    """The losses at the rates, until they diverge."""
    losses: list[float] = []
    for rate in rates:
        batch = next(batches, None)
        if batch is None:
            raise ValueError(f"find_lr: needs {len(rates)} batches; got {len(losses)}")
        try:
            losses.append(step([batch], lr=rate).loss)
        except NonFiniteError:
            break
        smoothed = _smooth(losses)
        if smoothed[-1] > _DIVERGED * min(smoothed):
            break
    return losses


def _smooth(losses: list[float]) -> list[float]:
    """An average that forgets, without the bias of its first values."""
    found, mean, norm = [], 0.0, 0.0
    for loss in losses:
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
        norm = _SMOOTHING * norm + (1 - _SMOOTHING)
        found.append(mean / norm)
    return found
