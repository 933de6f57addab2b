# SPDX-License-Identifier: MIT
"""ReduceOnPlateau: a factor on a schedule that falls when a metric stops getting better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ... import checks
from ...backend.device import alone
from ...backend.undivided import Undivided
from .adaptive import is_adaptive, update_schedule
from .curves import Schedule, constant

__all__ = ["ReduceOnPlateau"]

_MODES = ("min", "max")
_THRESHOLDS = ("rel", "abs")


class ReduceOnPlateau:
    """A schedule whose values shrink by `factor` when `update` sees no progress for long.

    Args:
        schedule: what the factor is for, or one number.
        factor: by which the values are multiplied each time, in (0, 1).
        patience: updates without progress that are borne, >= 0.
        threshold: progress below this does not count, >= 0.
        mode: "min" where less is better, or "max".
        threshold_mode: "rel" counts the threshold as a fraction of the best, "abs" as it is.
        cooldown: updates after a reduction during which none is counted, >= 0.
        least: no value is reduced below it, >= 0.

    Attributes:
        scale: the factor at present, 1 at first.
        best: the best metric so far.

    Raises:
        ValueError: a number is out of range, or an unknown mode.

    Source: torch.optim.lr_scheduler.ReduceLROnPlateau.

    Example:
        >>> lr = ReduceOnPlateau(1.0, factor=0.5, patience=1)
        >>> for loss in (3.0, 2.0, 2.0, 2.0):
        ...     reduced = lr.update(loss)
        >>> reduced, lr(4)
        (True, 0.5)
    """

    def __init__(
        self,
        schedule: Schedule | float,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        mode: str = "min",
        threshold_mode: str = "rel",
        cooldown: int = 0,
        least: float = 0.0,
    ) -> None:
        who = "ReduceOnPlateau"
        self._schedule: Any = (
            schedule if callable(schedule) else constant(checks.f32(who, "schedule", schedule, 0.0))
        )
        self.factor = checks.f32(who, "factor", factor, above=0.0, below=1.0)
        self.patience = checks.whole(who, "patience", patience, 0)
        self.cooldown = checks.whole(who, "cooldown", cooldown, 0)
        self.threshold = checks.f32(who, "threshold", threshold, 0.0)
        self.mode = checks.choice(who, "mode", mode, _MODES)
        self.threshold_mode = checks.choice(who, "threshold_mode", threshold_mode, _THRESHOLDS)
        self.least = checks.f32(who, "least", least, 0.0)
        self.scale = 1.0
        self.best = math.inf if mode == "min" else -math.inf
        self._bad = 0
        self._cooling = 0

    def __call__(self, step: int) -> float:
        """Return the value at a step.

        Raises:
            ValueError: the schedule gave no finite number.
        """
        value = checks.f32("ReduceOnPlateau", "schedule(step)", self._schedule(step))
        return max(value * self.scale, min(value, self.least))

    def update(self, metric: float, step: int | None = None) -> bool:
        """Take note of a metric; return True if the values were reduced.

        Args:
            metric: a NaN counts as no progress.
            step: after how many steps; only for a schedule within that follows a metric itself.

        Raises:
            TypeError: the metric is no number.
        """
        metric = checks.number("ReduceOnPlateau.update", "metric", metric, finite=False)
        with alone(), Undivided():  # other threads, and handlers, see a whole update, or none
            inner = update_schedule(self._schedule, metric, step)
            if self._is_better(metric):
                self.best = metric
                self._bad = 0
            else:
                self._bad += 1
            if self._cooling > 0:
                self._cooling -= 1
                self._bad = 0
            if self._bad <= self.patience:
                return inner
            self.scale *= self.factor
            self._cooling = self.cooldown
            self._bad = 0
            return True

    def _is_better(self, metric: float) -> bool:
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "abs":
            bar = self.best + sign * self.threshold
        elif math.isinf(self.best):
            bar = self.best
        else:
            bar = self.best * (1.0 + sign * self.threshold)
        return metric < bar if self.mode == "min" else metric > bar

    def state_dict(self) -> dict[str, Any]:
        """Return numbers for `load_state_dict`; the best is None before the first `update`."""
        with alone():  # between two updates
            best = None if math.isinf(self.best) else self.best
            own: dict[str, Any] = {
                "scale": self.scale,
                "best": best,
                "bad": self._bad,
                "cooling": self._cooling,
            }
            if is_adaptive(self._schedule):
                own["schedule"] = self._schedule.state_dict()
            return own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned; on an error nothing changes.

        Raises:
            KeyError: entries are missing or unexpected.
            TypeError: the state is no dict.
            ValueError: a number is out of range.
        """
        who = "ReduceOnPlateau.load_state_dict"
        expected = {"scale", "best", "bad", "cooling"}
        expected |= {"schedule"} if is_adaptive(self._schedule) else set()
        if set(checks.mapping(who, "state", state)) != expected:
            raise KeyError(f"{who}: needs {sorted(expected)}; got {sorted(map(str, state))}")
        scale = checks.f32(who, "scale", state["scale"], 0.0)
        counts = [checks.whole(who, name, state[name], 0) for name in ("bad", "cooling")]
        best = math.inf if self.mode == "min" else -math.inf
        if state["best"] is not None:
            best = checks.number(who, "best", state["best"])
        with alone():
            if "schedule" in expected:
                self._schedule.load_state_dict(state["schedule"])
            self.scale, self.best, (self._bad, self._cooling) = scale, best, counts
