# SPDX-License-Identifier: MIT
"""The learning-rate range test: rates that grow step by step, and the losses that they bring."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .finite import NonFiniteError
from .need import need_number
from .parts import need_model, need_optimizer
from .step import Batch, TrainStep

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

    The test ends when the loss diverges. All that it moved is then put back: the model, the
    optimizer, the loss scaling and the loader.

    Args:
        model: trained, and restored.
        optimizer: over its parameters; restored, too.
        batches: at least as many as steps, or endless, where those without a target that counts
            are not counted; a loader, which has `state_dict`, is moved back.
        start: lowest rate, > 0.
        end: highest rate, above start.
        steps: rates between the two, evenly spread on a logarithmic scale, >= 5.
        step: how to take a step; None makes a `TrainStep` without clipping.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: a number is out of range, the batches end too early, or the loss diverges
            within five steps; or the step is of another model or optimizer.

    Source: Smith 2017, arXiv:1506.01186; the smoothing and the choice are fastai's.

    Example:
        >>> find_lr(model, AdamW(model.parameters()), loader).suggested
        0.0021
    """
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    if not whole or steps < _STEPS_LEAST:
        raise ValueError(f"find_lr: steps must be an integer >= {_STEPS_LEAST}; got {steps!r}")
    for name, value in (("start", start), ("end", end)):
        need_number("find_lr", name, value)
    if not 0 < start < end:
        raise ValueError(f"find_lr: needs 0 < start < end; got start={start}, end={end}")
    need_optimizer("find_lr", optimizer, need_model("find_lr", model))
    if not isinstance(batches, Iterable):
        raise TypeError(
            f"find_lr: batches must be a loader or a list of them; got {type(batches).__name__}"
        )
    step = _step(model, optimizer, step)
    moved: list[Any] = [
        part for part in (model, optimizer, step.scaler, batches) if _has_state(part)
    ]
    before = [(part, part.state_dict()) for part in moved]
    runs = step.runs
    rates = np.geomspace(start, end, steps).tolist()
    try:
        losses = _losses(step, iter(batches), rates)
    finally:
        for part, state in before:
            part.load_state_dict(state)
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


def _step(model: Any, optimizer: Any, step: TrainStep | None) -> TrainStep:
    """The step that was given, which must be of these; or one without clipping."""
    if step is None:
        return TrainStep(model, optimizer)
    if not isinstance(step, TrainStep):
        raise TypeError(f"find_lr: step must be a TrainStep; got {type(step).__name__}")
    if step.model is not model or step.optimizer is not optimizer:
        raise ValueError("find_lr: step must be of the same model and optimizer; it is of others")
    return step


def _has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _losses(step: TrainStep, batches: Any, rates: list[float]) -> list[float]:
    """The losses at the rates, until they diverge."""
    losses: list[float] = []
    for rate in rates:
        loss = math.nan
        while math.isnan(loss):  # as long as no target of a batch counts
            batch = next(batches, None)
            if batch is None:
                raise ValueError(
                    f"find_lr: needs {len(rates)} batches; got {len(losses)} with a target that"
                    " counts"
                )
            try:
                loss = step([batch], lr=rate).loss
            except NonFiniteError:
                return losses
        losses.append(loss)
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
