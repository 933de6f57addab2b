# SPDX-License-Identifier: MIT
"""The rank that the others wait for."""

from __future__ import annotations

import logging
import statistics

import numpy as np

from .group import Group

__all__ = ["Pace"]

_log = logging.getLogger("pyggml.train")
# The first steps record graphs and read files; then so many steps are compared.
_FIRST, _STEPS = 3, 20
# A rank is slow when its steps take so many times those of the others, and so much longer.
_SLOW, _LEAST_S = 1.5, 0.01


class Pace:
    """Warns once of a rank whose steps take much longer than those of the others.

    Args:
        group: the ranks.

    Attributes:
        is_told: a slow rank was named.

    Example:
        >>> pace = Pace(Group())
        >>> pace.note(0.5)
    """

    def __init__(self, group: Group):
        self.is_told = False
        self._group, self._steps, self._busy_s = group, 0, 0.0
        self._waited_s = group.waited_s

    def note(self, took_s: float) -> None:
        """Note a step; every rank notes the same steps.

        Args:
            took_s: seconds of the step, with those of waiting for the others.
        """
        group = self._group
        waited, self._waited_s = group.waited_s - self._waited_s, group.waited_s
        self._steps += 1
        if group.size == 1 or self.is_told or self._steps <= _FIRST:
            return
        self._busy_s += max(0.0, took_s - waited)
        if (self._steps - _FIRST) % _STEPS:
            return
        every = np.zeros(group.size)
        every[group.rank] = self._busy_s / _STEPS
        self._busy_s = 0.0
        group.reduce([every])
        slowest = int(every.argmax())
        others = statistics.median(np.delete(every, slowest))
        if every[slowest] <= max(_SLOW * others, others + _LEAST_S):
            return
        self.is_told = True
        host = group.gather(group.host)[slowest]
        if group.is_first:
            _log.warning(
                "train: rank %d on %s computes %.1f times as long as the others, %.3g s a step; "
                "they wait for it", slowest, host, every[slowest] / max(others, 1e-9),
                every[slowest],
            )  # fmt: skip
