# SPDX-License-Identifier: MIT
"""The learning-rate range test: the loss at rates that grow step by step."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.device import alone
from ..backend.undivided import Undone
from ..checks import is_iterable, number, whole
from ..data.loader import endless
from ..nn.weight_check import WeightCheck
from .arguments import check_model, check_optimizer
from .finite import NonFiniteError
from .step import Batch, TrainStep

__all__ = ["LRFinding", "find_lr"]

_log = logging.getLogger("pyggml.train")
# A loss so many times the lowest is not coming back.
_DIVERGED = 4.0
# Weight of the past in the average that tells divergence; its first values are corrected for it.
_SMOOTHING = 0.9
# A line is fitted to losses weighted by a bell of this share of the steps, of two at least. An
# average of the past lags, and its slope follows single batches: of demos/lr_finder.py's model with
# six seeds and SGD, its suggestions in 60 steps were 0.009 to 0.093; these are 0.0056 to 0.011.
_BELL, _BELL_LEAST = 1 / 20, 2.0
# A curve that falls by less, in standard deviations of the losses about it, may be a flat one.
_FALL_LEAST = 2.0
# Fewer steps show no slope.
_STEPS_LEAST = 5


@dataclass(frozen=True)
class LRFinding:
    """The result of a range test.

    Args:
        rates: tried, rising.
        losses: of the steps at these rates.
        smoothed: the losses, smoothed; those above all that came before the lowest count as these.
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
    """Train for some steps at growing rates; find the rate at which the loss falls fastest.

    The test ends when the loss diverges. All that it moved is then put back: the model, the
    optimizer, the loss scaling and the loader. A line is fitted to the losses around each rate;
    where it is steepest before the lowest loss is the suggestion. A warning is logged of a loss
    that hardly falls, that falls fastest at `start`, or that still falls at `end`.

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
        RuntimeError: another thread changed the model's weights meanwhile.

    Source: Smith 2017, arXiv:1506.01186; lines through weighted neighbours are Cleveland's (1979,
        JASA 74:829), the weights here Gaussian.

    Example:
        >>> from pyggml.data import Loader, RandomWindows
        >>> loader = Loader(RandomWindows(np.arange(200) % 65, 8), 4)
        >>> found = find_lr(model, pg.optim.AdamW(model), loader, end=0.1, steps=20)
        >>> 1e-6 <= found.suggested <= 0.1
        True
    """
    whole("find_lr", "steps", steps, _STEPS_LEAST)
    number("find_lr", "start", start, above=0)
    number("find_lr", "end", end, above=start)
    check_optimizer("find_lr", optimizer, check_model("find_lr", model))
    if not is_iterable(batches):
        raise TypeError(
            f"find_lr: batches must be a loader or a list of them; got {type(batches).__name__}"
        )
    step = _step(model, optimizer, step)
    weights = WeightCheck("find_lr", model)
    rates = np.geomspace(start, end, steps).tolist()
    with _PutBack(step, batches, weights):
        losses = _losses(step, endless(batches), rates, weights)
    if len(losses) < _STEPS_LEAST:
        raise ValueError(
            f"find_lr: the loss diverged after {len(losses)} steps, at the rate "
            f"{rates[min(len(losses), steps - 1)]:.3g}; got `start`={start}: begin lower"
        )
    return _choose(rates[: len(losses)], losses)


class _PutBack(Undone):
    """A block of steps after which all that these move is as before.

    Args:
        step: takes them.
        batches: are moved back, if they have a state.
        weights: of the step's model.
    """

    def __init__(self, step: TrainStep, batches: Any, weights: WeightCheck):
        super().__init__()
        self._step, self._batches, self._weights = step, batches, weights
        self._before: list[tuple[Any, Any]] = []
        self._runs = step.runs

    def enter(self) -> None:
        """Copy the states."""
        step = self._step
        moved: list[Any] = [step.model, step.optimizer, step.scaler, self._batches]
        with alone(), self._weights.unchanged():
            self._before = [
                (part, part.state_dict())
                for part in moved
                if hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
            ]

    def undo(self) -> None:
        """Load them."""
        if self._before:
            for part, state in self._before:
                part.load_state_dict(state)
            self._step.runs = self._runs
            if not self._step.optimizer.fused_update:
                self._step.optimizer.zero_grad()
            self._before = []


def _choose(rates: list[float], losses: list[float]) -> LRFinding:
    """The rate where the losses fall fastest, if they fall."""
    # What diverges would bend the lines of its neighbours.
    seen = np.array(losses)
    seen = np.minimum(seen, seen[: int(seen.argmin()) + 1].max())
    smoothed, slopes = _lines(seen)
    lowest = int(smoothed.argmin())
    fallen = float(smoothed[: lowest + 1].max() - smoothed[lowest])
    spread = float((seen - smoothed)[: lowest + 1].std())
    # What falls behind the lowest loss, after a rise, is noise.
    steepest = int(slopes[: max(lowest, 1)].argmin())
    if not fallen > _FALL_LEAST * spread:
        _log.warning(
            "find_lr: the suggestion is a guess: the loss fell by %.3g, and varies by %.3g from"
            " batch to batch; try higher rates, more steps or larger batches",
            fallen,
            spread,
        )
    elif steepest == 0:
        _log.warning("find_lr: the loss falls fastest at the lowest rate tried: begin lower")
    elif lowest == len(rates) - 1:
        _log.warning("find_lr: the loss still falls at the highest rate tried: end higher")
    return LRFinding(
        tuple(rates), tuple(losses), tuple(smoothed.tolist()), rates[steepest], rates[lowest]
    )


def _lines(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Height and slope of the line through the neighbours of each loss (N,), near ones first."""
    apart = np.arange(len(losses))[None] - np.arange(len(losses))[:, None]  # (N, N)
    weights = np.exp(-0.5 * (apart / max(_BELL_LEAST, _BELL * len(losses))) ** 2)
    weights /= weights.sum(axis=1, keepdims=True)
    place, height = (weights * apart).sum(axis=1), weights @ losses
    off = apart - place[:, None]
    slopes = (weights * off * losses).sum(axis=1) / (weights * off**2).sum(axis=1)
    return height - slopes * place, slopes


def _step(model: Any, optimizer: Any, step: TrainStep | None) -> TrainStep:
    """The step that was given, which must be of these; or one without clipping."""
    if step is None:
        return TrainStep(model, optimizer)
    if not isinstance(step, TrainStep):
        raise TypeError(f"find_lr: step must be a TrainStep; got {type(step).__name__}")
    if step.model is not model or step.optimizer is not optimizer:
        raise ValueError("find_lr: step must be of the same model and optimizer; it is of others")
    return step


def _losses(step: TrainStep, batches: Any, rates: list[float], weights: WeightCheck) -> list[float]:
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
                with alone(), weights.unchanged():
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
