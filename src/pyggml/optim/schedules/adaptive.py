# SPDX-License-Identifier: MIT
"""Schedules that hear of measures, alone and as parts of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._check import check_mapping, check_whole

__all__ = ["Joined", "is_adaptive", "update_schedule"]

_METHODS = ("update", "state_dict", "load_state_dict")


def is_adaptive(schedule: Any) -> bool:
    """Whether a schedule hears of measures: it has `update`, `state_dict` and `load_state_dict`.

    Args:
        schedule: a schedule.

    Example:
        >>> is_adaptive(lambda step: 0.1)
        False
    """
    return all(callable(getattr(schedule, name, None)) for name in _METHODS)


def update_schedule(schedule: Any, measure: float, step: int | None = None) -> bool:
    """Tell a schedule a measure, where it hears of any; returns whether its values were reduced.

    Args:
        schedule: a schedule.
        measure: of an evaluation, say.
        step: after how many steps; None where that is not known.
    """
    if not is_adaptive(schedule):
        return False
    if "step" in inspect.signature(schedule.update).parameters:
        return bool(schedule.update(measure, step=step))
    return bool(schedule.update(measure))


class Joined:
    """Schedules one after another, of which some hear of measures; made by `schedules.join`.

    Args:
        value: step -> value.
        parts: the schedules.
        starts: first step of each.
    """

    def __init__(
        self,
        value: Callable[[int], float],
        parts: Sequence[Callable[[int], float]],
        starts: Sequence[int],
    ) -> None:
        self._value = value
        self._parts = parts
        self._starts = starts

    def __call__(self, step: int) -> float:
        """The value at a step."""
        return self._value(step)

    def _adaptive(self) -> dict[str, Any]:
        """The parts that hear of measures, by their number; the same one once."""
        found: dict[int, tuple[str, Any]] = {}
        for number, part in enumerate(self._parts):
            if is_adaptive(part):
                found.setdefault(id(part), (str(number), part))
        return dict(found.values())

    def update(self, measure: float, step: int | None = None) -> bool:
        """Tell a measure to the part that gives the value at a step; returns whether that fell.

        Args:
            measure: of an evaluation, say; a NaN counts as no progress.
            step: after how many steps; None tells all parts.

        Raises:
            ValueError: the measure is no number, or the step no whole number from 0.
        """
        if step is None:
            reduced = [update_schedule(part, measure) for part in self._adaptive().values()]
            return any(reduced)
        step = check_whole("join: update", "step", step)
        current = sum(step >= start for start in self._starts[1:])
        return update_schedule(self._parts[current], measure, step - self._starts[current])

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: the states of the parts that have any, by their number."""
        return {number: part.state_dict() for number, part in self._adaptive().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave; nothing changes when anything does not fit.

        Raises:
            KeyError: entries are missing or unexpected.
            TypeError: the state is no dict.
            ValueError: a number is out of range.
        """
        who, parts = "join: load_state_dict", self._adaptive()
        if set(check_mapping(who, state)) != set(parts):
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
