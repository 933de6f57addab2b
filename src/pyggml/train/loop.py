# SPDX-License-Identifier: MIT
"""Step after step: what a trainer does between its first and its last."""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import BackendError
from ..optim.schedules.adaptive import update_schedule
from .batches import Batch
from .checkpoints.folders import CheckpointError
from .diagnose import TrainingError, diverged, find_cause
from .finite import NonFiniteError
from .interrupt import InterruptGuard
from .metrics.efficiency import memory_in_use
from .metrics.records import StepMetrics
from .need import need_number

if TYPE_CHECKING:
    from .trainer import Trainer

__all__ = ["Loop"]

_log = logging.getLogger("pyggml.train")
_SPEED_STEPS = 20
# After these the weights may not be those of a whole step, or cannot be read or written.
_HOPELESS = (BackendError, CheckpointError, MemoryError)


class Loop:
    """Takes steps, evaluates and saves, until the run is done or a signal asks for the end.

    Args:
        trainer: what is trained; its `step` and what else it counts go on.
        guard: knows of signals.

    Attributes:
        loss: of the last step, or None before the first.
    """

    def __init__(self, trainer: Trainer, guard: InterruptGuard):
        self.loss: float | None = None
        self._trainer = trainer
        self._guard = guard
        self._batches = iter(trainer.loader)
        self._recent: deque[tuple[float, int]] = deque(maxlen=_SPEED_STEPS)
        self._loader_state = trainer.loader_state()

    def run(self) -> None:
        """Train; an error that spoils nothing leaves a checkpoint of the steps before it."""
        trainer = self._trainer
        try:
            if trainer.step and trainer._evaluated != trainer.step:
                self._after_step(resumed=True)  # a signal came before its evaluation
            elif trainer.step == trainer.total_steps and trainer._sets:
                trainer.evaluate(stop=lambda: self._guard.requested)
            while not trainer.is_done and not self._guard.requested:
                self._one_step()
                self._after_step()
            self._keep_last()
        except Exception as error:
            self._rescue(error)
            raise

    def _one_step(self) -> None:
        """One optimizer step, measured."""
        trainer, config = self._trainer, self._trainer.config
        began = time.perf_counter()
        lr = need_number("Trainer", "what schedule gives", trainer.schedule(trainer.step))
        self._loader_state = trainer.loader_state()
        try:
            batches = [next(self._batches) for _ in range(config.accumulate)]
        except StopIteration:
            raise TrainingError(
                f"train: the loader ended after step {trainer.step} of {trainer.total_steps}; it "
                "must go on without an end, as those of pyggml.data do"
            ) from None
        waited = time.perf_counter() - began
        trainer._train_step.runs = trainer.step * config.accumulate
        scale = None if trainer.scaler is None else trainer.scaler.scale
        try:
            result = trainer._train_step(batches, lr)
        except NonFiniteError as error:
            raise TrainingError(self._explain(error, batches)) from error
        if trainer.ema is not None and not result.skipped:
            trainer.ema.update()
        took = time.perf_counter() - began
        trainer.step += 1
        trainer.tokens += result.tokens
        trainer.elapsed_s += took
        self._loader_state = trainer.loader_state()
        self.loss = result.loss
        self._recent.append((took, result.tokens))
        speed = sum(n for _, n in self._recent) / max(sum(t for t, _ in self._recent), 1e-9)
        metrics = StepMetrics(
            trainer.step,
            result.loss,
            lr,
            result.grad_norm,
            trainer.tokens,
            speed,
            trainer.elapsed_s,
            waited,
            memory_in_use(trainer.device),
            trainer.mfu(speed),
            scale,
            None if trainer.scaler is None else trainer.scaler.skipped,
        )
        trainer.tell("on_step", metrics)

    def _after_step(self, resumed: bool = False) -> None:
        """Evaluate and save when it is time; a resumed step that owes nothing is left alone."""
        trainer, guard = self._trainer, self._guard
        due = trainer.eval_every and trainer.step % trainer.eval_every == 0
        owed = bool(trainer._sets and (trainer.is_done or due))
        if resumed and not owed:
            return
        if owed and not guard.requested:
            done = trainer.evaluate(stop=lambda: guard.requested)
            if done is not None:
                trainer._evaluated = trainer.step
                trainer._saved_step = None  # a checkpoint without this evaluation is behind
            if done is not None:
                update_schedule(trainer.schedule, done.loss, trainer.step)
            if done is not None and trainer.best is not None and not trainer.is_best:
                trainer.best = {**trainer.best, "stale": trainer.best.get("stale", 0) + 1}
        due = trainer.save_every and trainer.step % trainer.save_every == 0
        saved = None
        if trainer.checkpoint_dir is not None and (trainer.is_done or due or guard.requested):
            saved = trainer.save()
        if trainer.checkpoint_dir is not None and trainer.is_best and trainer.config.keep_best:
            trainer.save_best(saved)

    def _keep_last(self) -> None:
        """Save the last step when a signal came after the decision that it needs no checkpoint."""
        trainer = self._trainer
        is_saved = not trainer.step or trainer._saved_step == trainer.step
        if self._guard.requested and trainer.checkpoint_dir is not None and not is_saved:
            trainer.save()

    def _explain(self, error: NonFiniteError, batches: list[Batch]) -> str:
        """The message of a run that cannot go on, with the op that began it."""
        trainer, cause = self._trainer, None
        if not error.spoiled and error.source != "inputs":
            runs = trainer.step * trainer.config.accumulate
            cause = find_cause(trainer._train_step, batches, runs)
        return diverged(error, trainer.config, trainer.step, trainer.last_checkpoint, cause)

    def _rescue(self, error: Exception) -> None:
        """Keep the steps that were done before an error in an evaluation, a callback, a batch."""
        trainer = self._trainer
        is_saved = trainer._saved_step == trainer.step
        if trainer.checkpoint_dir is None or not trainer.step or is_saved:
            return
        if isinstance(error, _HOPELESS) or isinstance(error.__cause__, NonFiniteError):
            return
        # What is wrong with the disk or the device may be wrong with this, too.
        with suppress(CheckpointError, BackendError, OSError):
            path = trainer._save(self._loader_state)
            _log.warning(
                "train: %s at step %d; a checkpoint was written: %s",
                type(error).__name__, trainer.step, path,
            )  # fmt: skip
