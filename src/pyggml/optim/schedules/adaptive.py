# SPDX-License-Identifier: MIT
"""Schedules that follow a metric, alone and as parts of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import checks

__all__ = ["Joined", "is_adaptive", "update_schedule"]

_METHODS = ("update", "state_dict", "load_state_dict")


def is_adaptive(schedule: Any) -> bool:
    """Return True for a schedule that follows a metric: it has `update` and a state.

    Args:
        schedule: a schedule.

    Example:
        >>> is_adaptive(lambda step: 0.1)
        False
    """
    return all(callable(getattr(schedule, name, None)) for name in _METHODS)


def update_schedule(schedule: Any, metric: float, step: int | None = None) -> bool:
    """Pass a metric to a schedule that follows one; return True if this reduced its values.

    Args:
        schedule: a schedule.
        metric: of an evaluation, say.
        step: after how many steps; None where that is not known.
    """
    if not is_adaptive(schedule):
        return False
    if "step" in inspect.signature(schedule.update).parameters:
        return bool(schedule.update(metric, step=step))
    return bool(schedule.update(metric))


class Joined:
    """Schedules one after another, of which some follow a metric; made by `schedules.join`.

    Args:
        value: step -> value.
        parts: the schedules.
        starts: first step of each.

    Raises:
        TypeError: value or a part cannot be called, or a start is no whole number.
        ValueError: there are no parts, or not as many starts.
    """

    def __init__(
        self,
        value: Callable[[int], float],
        parts: Sequence[Callable[[int], float]],
        starts: Sequence[int],
    ) -> None:
        self._value = checks.function("Joined", "value", value, "step -> value")
        self._parts = checks.items("Joined", "parts", parts)
        if not self._parts:
            raise ValueError("Joined: parts must have a schedule at least; got none")
        for part in self._parts:
            checks.function("Joined", "each of parts", part, "step -> value")
        given = checks.items("Joined", "starts", starts, len(self._parts))
        self._starts = [checks.whole("Joined", "each of starts", start, 0) for start in given]

    def __call__(self, step: int) -> float:
        """Return the value at a step."""
        return float(self._value(step))

    def _adaptive(self) -> dict[str, Any]:
        """Return the parts that follow a metric, by their number; the same one once."""
        found: dict[int, tuple[str, Any]] = {}
        for number, part in enumerate(self._parts):
            if is_adaptive(part):
                found.setdefault(id(part), (str(number), part))
        return dict(found.values())

    def update(self, metric: float, step: int | None = None) -> bool:
        """Pass a metric to the part that is active at a step; return True if this reduced it.

        Args:
            metric: of an evaluation, say; a NaN counts as no progress.
            step: after how many steps; None tells all parts.

        Raises:
            ValueError: the metric is no number, or the step no whole number from 0.
        """
        if step is None:
            reduced = [update_schedule(part, metric) for part in self._adaptive().values()]
            return any(reduced)
        step = checks.whole("join: update", "step", step, 0)
        current = sum(step >= start for start in self._starts[1:])
        return update_schedule(self._parts[current], metric, step - self._starts[current])

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the parts that have one, by their number."""
        return {number: part.state_dict() for number, part in self._adaptive().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned; on an error nothing changes.

        Raises:
            KeyError: entries are missing or unexpected.
            TypeError: the state is no dict.
            ValueError: a number is out of range.
        """
        who, parts = "join: load_state_dict", self._adaptive()
        if set(checks.mapping(who, "state", state)) != set(parts):
            raise KeyError(
                f"{who}: needs the states of parts {sorted(parts)}; got {sorted(map(str, state))}"
            )
        before = self.state_dict()
        try:
            for number, part in parts.items():
                part.load_state_dict(state[number])
        except BaseException:
            for number, part in parts.items():
                part.load_state_dict(before[number])
            raise
