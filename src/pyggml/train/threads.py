# SPDX-License-Identifier: MIT
"""The number of CPU threads while other programs use the machine."""

from __future__ import annotations

import logging
import time
from typing import ClassVar

from ..backend.device import Device, divide_cores, get_threads, threads_are_chosen
from ..errors import amount

__all__ = ["BusyCores"]

_log = logging.getLogger("pyggml.train")
# After a change so many steps are not measured, then so many are.
_SKIPPED, _MEASURED = 1, 3
# Below this share of its threads' time, a step waits for threads that others keep from the cores.
_BUSY = 0.8
# Fewer threads must be so many times as fast.
_GAIN = 1.15
_AGAIN_S = 300.0


class BusyCores:
    """Measures the first steps, and lets a training compute on fewer threads where that is faster.

    The threads of an op wait for each other: one that another program keeps from its core holds all
    of them up. Where the first steps use less than 80% of their threads' time, the next ones
    compute on half of the threads and on one, and the fastest number stays for five minutes. The
    results have the same bits on any number of threads. A number that OMP_NUM_THREADS,
    `set_threads` or the ranks of a host have chosen stays as it is.

    Args:
        device: what computes.

    Example:
        >>> cores = BusyCores(pg.device("cpu"))
        >>> cores.note(0.5, 0.5, 128)
        >>> cores.close()
    """

    # Of all trainings of the process: a number is told when it is not the one that was told last.
    told: ClassVar[int | None] = None

    def __init__(self, device: Device):
        self._all = get_threads()
        self._is_on = device.kind == "cpu" and self._all > 1 and not threads_are_chosen()
        self._now = self._all
        self._begin(self._all)
        self._rates: dict[int, float] = {}
        self._again_at = 0.0
        self._is_settled = False

    def note(self, took_s: float, cpu_s: float, size: int) -> None:
        """Note a step.

        Args:
            took_s: seconds by the clock.
            cpu_s: seconds of all threads.
            size: numbers that the step read, such as tokens.
        """
        if not self._is_on or get_threads() != self._now:
            return  # the program has set another number meanwhile
        if self._is_settled:
            if time.monotonic() >= self._again_at:
                self._is_settled = False
                self._rates.clear()
                self._begin(self._all)
            return
        self._steps += 1
        if self._steps <= _SKIPPED:
            return
        self._took_s += took_s
        self._cpu_s += cpu_s
        self._size += size
        if self._steps < _SKIPPED + _MEASURED:
            return
        self._rates[self._now] = self._size / max(self._took_s, 1e-9)
        if self._now == self._all and self._cpu_s >= _BUSY * self._took_s * self._all:
            self._settle(self._all)
            return
        left = [n for n in (self._all // 2, 1) if n not in self._rates]
        if left:
            self._begin(left[0])
            return
        best = max(self._rates, key=self._rates.__getitem__)
        is_faster = self._rates[best] > _GAIN * self._rates[self._all]
        self._settle(best if is_faster else self._all)

    def close(self) -> None:
        """Let what follows compute on all threads again."""
        if self._is_on and self._now != self._all:
            divide_cores(None)

    def _begin(self, threads: int) -> None:
        """Measure the next steps on so many threads."""
        self._steps, self._size, self._took_s, self._cpu_s = 0, 0, 0.0, 0.0
        self._use(threads)

    def _use(self, threads: int) -> None:
        if threads != self._now:
            self._now = threads
            divide_cores(None if threads == self._all else threads)

    def _settle(self, threads: int) -> None:
        """Stay with a number for a while, and tell of a change."""
        self._use(threads)
        self._is_settled, self._again_at = True, time.monotonic() + _AGAIN_S
        if threads == (BusyCores.told or self._all):
            return
        BusyCores.told = threads
        if threads == self._all:
            _log.warning("train: the machine is free again; %d CPU threads compute", threads)
            return
        _log.warning(
            "train: other programs use the cores; %s instead of %d: %.1f times as "
            "fast; `threads` sets a number", amount(threads, "CPU thread"), self._all,
            self._rates[threads] / self._rates[self._all],
        )  # fmt: skip
