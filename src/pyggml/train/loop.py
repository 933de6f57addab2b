# SPDX-License-Identifier: MIT
"""The loop of a training: step after step, with evaluations and checkpoints between."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import repeat
from typing import Any

from ..backend.device import alone
from ..backend.undivided import Undivided, settle
from ..checks import number
from ..data.loader import endless
from ..distributed.pace import Pace
from ..errors import BackendError, DistributedError
from ..optim.schedules.adaptive import update_schedule
from .batches import Batch
from .checkpoints.folders import CheckpointError
from .checkpoints.keeper import Checkpoints
from .clock import StepClock
from .diagnose import TrainingError, explain
from .evaluation.evaluator import Evaluator
from .finite import NonFiniteError
from .interrupt import InterruptGuard
from .metrics import EvalMetrics
from .metrics.efficiency import Utilization
from .result import StepResult
from .run import Run

__all__ = ["Loop", "interval"]

_log = logging.getLogger("pyggml.train")
# After these the weights may not be those of a whole step, or cannot be read or written.
_HOPELESS = (BackendError, CheckpointError, MemoryError)


def interval(value: int | None, total_steps: int, parts: int, unit: int = 1) -> int:
    """Return an interval in steps: as given, or the length of a run divided by `parts`.

    Args:
        value: the interval given, or None.
        total_steps: steps of the run.
        parts: number of parts.
        unit: an interval that is not given is a multiple of this; 0 is 1.

    Example:
        >>> interval(None, 100, 5), interval(7, 100, 5)
        (20, 7)
    """
    unit = max(1, unit)
    return -(-max(1, total_steps // parts) // unit) * unit if value is None else value


class Loop:
    """Takes steps, evaluates and saves, until the run is done or a signal asks for the end.

    Args:
        run: what is trained; its `step` and the other counts go on.
        evaluator: evaluates the run.
        checkpoints: keeps its checkpoints.
        utilization: tells the share of the device's peak.
        guard: notes signals.
    """

    def __init__(
        self,
        run: Run,
        evaluator: Evaluator,
        checkpoints: Checkpoints,
        utilization: Utilization,
        guard: InterruptGuard,
    ):
        self._run, self._evaluator, self._checkpoints = run, evaluator, checkpoints
        self._guard = guard
        self._clock = StepClock(run, utilization)
        self._whole = checkpoints.whole
        self._whole.enter()
        # Batches without a state go on where they are; an error ends a generator for good.
        if self._whole.has_state or getattr(run.batches, "gi_frame", run.batches) is None:
            run.batches = endless(run.loader)
        self._group = run.group
        self._pace = Pace(run.group)
        options = run.options
        self._eval_every = interval(options.eval_every, run.total_steps, 10, options.sync_every)
        self._save_every = interval(options.save_every, run.total_steps, 5, options.sync_every)
        self._round_s = 0.0

    @property
    def loss(self) -> float | None:
        """Loss of the last step, or None before the first."""
        return self._clock.loss

    def train(self) -> None:
        """Train; after an error that left the weights intact, write a checkpoint first."""
        run = self._run
        try:
            run.tell_owed()  # a signal came before that, or before what follows a step
            evaluated = run.evaluated
            if run.step:
                self._after_step(resumed=True)
            if run.step == run.total_steps and evaluated == run.step and self._evaluator.sets:
                last = self._evaluator.last
                if last is None or last.step != run.step:  # another process has evaluated it
                    self._evaluator.evaluate(self._must_stop)
            while not run.is_done and not self._is_stopping():
                self._one_step()
                self._after_step()
            self._keep_last()
            self._whole.leave()
        except BaseException as error:
            try:
                try:
                    run.tell_owed()
                finally:
                    self._whole.leave()
            finally:
                if isinstance(error, Exception):
                    self._rescue(error)
            raise
        finally:
            self._clock.close()

    def _must_stop(self) -> bool:
        return self._guard.requested

    def _is_stopping(self) -> bool:
        """Return whether a rank was asked to stop; all ranks ask at the same places."""
        return not self._run.is_apart and self._group.any(self._guard.requested)

    def _one_step(self) -> None:
        """Take one optimizer step, and tell of it."""
        run, clock = self._run, self._clock
        lr = number("Trainer", "the rate of schedule", run.schedule(run.step), 0)
        clock.start(lr)
        if self._group.size > 1:
            self._group.doing = f"step {run.step + 1}, last checkpoint {self._checkpoints.last}"
        run.train_step.runs = run.step * run.options.accumulate
        batches = self._next_batches()
        clock.drew(batches)
        position = self._whole.loader_state()
        try:
            # Other threads see all that a checkpoint has of a step, or none of it.
            with alone(), self._checkpoints.changing():
                result = self._update(batches, lr, position)
                self._end_round(result, position)
        except NonFiniteError as error:
            reason = explain(run, error, batches, self._checkpoints.last)
            raise TrainingError(reason) from error
        clock.stop(result)
        run.tell_owed()

    def _update(self, batches: list[Batch], lr: float, position: Any) -> StepResult:
        """Compute a step, and count it; no signal divides what changes the run."""
        run = self._run
        with Undivided(later=True):
            self._whole.begin()
            result = run.train_step(batches, lr)
            with Undivided():
                settle()
                if run.ema is not None and not result.skipped:
                    run.ema.update()
                run.step += 1
                run.tokens += result.tokens
                if run.local is not None:
                    run.local.count(result.tokens)
                run.drawn = []
                self._clock.count(result, result.loss)
                if run.local is None or run.is_apart:
                    self._whole.end(position)
        return result

    def _end_round(self, result: StepResult, position: Any) -> None:
        """Average the ranks' weights where it is time, and compare the ranks' speed."""
        run, options = self._run, self._run.options
        self._round_s += self._clock.computed()
        if run.is_apart:
            return
        if run.local is not None:
            own = run.local.tokens
            loss = result.loss * result.tokens if result.tokens else 0.0
            tokens, loss, counted = run.local.sync(own, loss, result.tokens)
            run.tokens += round(tokens) - own
            self._clock.count(result, loss / counted if counted else result.loss)
            self._whole.end(position)
        self._pace.note(self._round_s / max(1, options.sync_every))
        self._round_s = 0.0

    def _next_batches(self) -> list[Batch]:
        """Draw the batches of a step."""
        run = self._run
        if self._whole.has_state:
            self._whole.draw()
        # Of C: each batch is kept as soon as it is drawn.
        left = run.options.accumulate - len(run.drawn)
        assert run.batches is not None
        run.drawn.extend(map(next, repeat(run.batches, left)))
        if len(run.drawn) < run.options.accumulate:
            run.batches = None
            raise TrainingError(
                f"train: the loader ended after step {run.step} of {run.total_steps}; "
                "it must go on without an end, as those of pyggml.data do"
            )
        self._whole.drew()
        return list(run.drawn)

    def _after_step(self, resumed: bool = False) -> None:
        """Evaluate and save when it is time; a resumed step may have done either."""
        run, checkpoints = self._run, self._checkpoints
        due = self._eval_every and run.step % self._eval_every == 0
        owed = bool(self._evaluator.sets and (run.is_done or due) and run.evaluated != run.step)
        if owed and not self._is_stopping():
            self._whole.draw()  # a loss may draw numbers
            if self._evaluator.evaluate(self._must_stop, self._count_evaluation) is None:
                self._whole.go_back()
            run.tell_owed()
        if checkpoints.directory is None:
            return
        due = self._save_every and run.step % self._save_every == 0
        if (run.is_done or due or self._is_stopping()) and not (resumed and self._is_saved()):
            checkpoints.save()
        if run.is_best and run.options.value("keep_best") and (owed or not resumed):
            checkpoints.save_best()

    def _count_evaluation(self, found: list[EvalMetrics]) -> None:
        """Let the run go on by an evaluation of its last step."""
        run = self._run
        with self._checkpoints.changing():
            update_schedule(run.schedule, found[0].loss, run.step)
            run.lowest.wait(run.step)
            run.evaluated = run.step
            self._whole.keep()
            for metrics in found:
                run.owe("on_evaluation", metrics)

    def _is_saved(self) -> bool:
        """Return whether rank 0 has saved the last step; all ranks ask at the same places."""
        group = self._group
        return not group.any(group.is_first and not self._checkpoints.is_saved)

    def _keep_last(self) -> None:
        """Save the last step when a signal came after the decision that it needs no checkpoint."""
        checkpoints, is_saved = self._checkpoints, not self._run.step or self._checkpoints.is_saved
        if checkpoints.directory is not None and not is_saved and self._is_stopping():
            checkpoints.save()

    def _rescue(self, error: Exception) -> None:
        """Keep the steps that were done before an error in an evaluation, a callback, a batch."""
        checkpoints, run = self._checkpoints, self._run
        if checkpoints.directory is None or not run.step or checkpoints.is_saved:
            return
        if not self._group.is_first:
            return  # rank 0 does, if all ranks came here; the others would wait for it
        if isinstance(error, _HOPELESS) or isinstance(error.__cause__, NonFiniteError):
            return
        if run.is_apart or not self._whole.is_whole:
            what = f"{run.options.sync_every} steps" if run.is_apart else f"step {run.step + 1}"
            _log.warning(
                "train: %s ended %s in the middle: no checkpoint was written; the last is %s",
                type(error).__name__, what, checkpoints.last,
            )  # fmt: skip
            return
        # What is wrong with the disk or the device may be wrong with this, too; and a state that
        # ranks divide cannot be written by one of them.
        with suppress(CheckpointError, BackendError, DistributedError, OSError):
            path = checkpoints.write()
            _log.warning(
                "train: %s at step %d; a checkpoint was written: %s",
                type(error).__name__, run.step, path,
            )  # fmt: skip
