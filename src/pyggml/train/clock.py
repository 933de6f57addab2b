# SPDX-License-Identifier: MIT
"""The time that the steps of a training take, and what its callbacks are told of them."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from .batches import Batch
from .metrics import StepMetrics
from .metrics.efficiency import Utilization, memory_in_use
from .result import StepResult
from .run import Run
from .threads import BusyCores

__all__ = ["StepClock"]

_SPEED_STEPS = 20


class StepClock:
    """Measures each step of a training, and notes what its callbacks are to be told.

    Args:
        run: what is trained; its `elapsed_s` goes on.
        utilization: tells the share of the device's peak.

    Attributes:
        loss: loss of the last step, or None before the first.
    """

    def __init__(self, run: Run, utilization: Utilization):
        self.loss: float | None = None
        self._run, self._utilization = run, utilization
        self._cores = BusyCores(run.device)
        self._recent: deque[tuple[float, int]] = deque(maxlen=_SPEED_STEPS)

    def start(self, lr: float) -> None:
        """Begin a step.

        Args:
            lr: its learning rate.
        """
        run = self._run
        self._began, self._began_cpu = time.perf_counter(), time.process_time()
        self._lr, self._elapsed_s = lr, run.elapsed_s
        self._scale = None if run.scaler is None else run.scaler.scale

    def drew(self, batches: list[Batch]) -> None:
        """Note that the batches of the step are there.

        Args:
            batches: of the step.
        """
        self._wait_s = time.perf_counter() - self._began
        self._size = sum(int(np.size(batch[0])) for batch in batches)

    def count(self, result: StepResult, loss: float) -> None:
        """Count the step's time, and note what the callbacks are to be told of it.

        Args:
            result: of the step.
            loss: its loss, of all ranks where they average it.
        """
        run, self.loss = self._run, loss
        took = time.perf_counter() - self._began
        run.elapsed_s = self._elapsed_s + took
        recent = [*self._recent, (took, result.tokens)]
        speed = sum(n for _, n in recent) / max(sum(t for t, _ in recent), 1e-9)
        run.untold.clear()  # of the same step, before its round
        metrics = StepMetrics(
            run.step,
            loss,
            self._lr,
            result.grad_norm,
            run.tokens,
            speed,
            run.elapsed_s,
            self._wait_s,
            memory_in_use(run.device),
            self._utilization.share(speed),
            self._scale,
            None if run.scaler is None else run.scaler.skipped,
        )
        run.owe("on_step", metrics)

    def computed(self) -> float:
        """Return the seconds of the step so far, before the ranks average their weights."""
        self._took_s = time.perf_counter() - self._began
        self._cpu_s = time.process_time() - self._began_cpu
        return self._took_s

    def stop(self, result: StepResult) -> None:
        """End a step.

        Args:
            result: of the step.
        """
        self._cores.note(self._took_s - self._wait_s, self._cpu_s, self._size)
        self._recent.append((self._run.elapsed_s - self._elapsed_s, result.tokens))

    def close(self) -> None:
        """Let what follows compute on all threads again."""
        self._cores.close()
