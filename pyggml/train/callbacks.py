# SPDX-License-Identifier: MIT
"""What may look on while a model trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .metrics import EvalMetrics, MetricsError, MetricsFile, StepMetrics

if TYPE_CHECKING:
    from .trainer import Trainer

__all__ = ["Callback", "MetricsWriter"]


class Callback:
    """Base of callbacks: override what you want to hear of.

    Example:
        >>> class Print(Callback):
        ...     def on_step(self, trainer, metrics):
        ...         print(metrics.step, metrics.loss)
    """

    def on_start(self, trainer: Trainer) -> None:
        """Training begins or continues at `trainer.step`."""

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """An optimizer step was done."""

    def on_evaluation_start(self, trainer: Trainer) -> None:
        """The validation split is about to be read."""

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """The validation split was read."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """A checkpoint was written."""

    def on_interrupt(self, trainer: Trainer, signum: int) -> None:
        """A signal asked for the end; the running step is still being finished."""

    def on_end(self, trainer: Trainer) -> None:
        """Training ended: finished, interrupted or failed."""


class MetricsWriter(Callback):
    """Writes every step and evaluation to a file of JSON lines.

    A resumed run first drops the lines of steps that it will do again.

    Args:
        path: the file.

    Raises:
        MetricsError: from the hooks, when the file cannot be written; names it, the last
            checkpoint and the way on.
    """

    def __init__(self, path: str | Path):
        self.file = MetricsFile(path)

    def on_start(self, trainer: Trainer) -> None:
        """Drop what is later than the run."""
        with self._explained(trainer):
            self.file.truncate_after(trainer.step)

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Append the step."""
        with self._explained(trainer):
            self.file.write(metrics)

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """Append the evaluation."""
        with self._explained(trainer):
            self.file.write(metrics)

    @contextmanager
    def _explained(self, trainer: Trainer) -> Iterator[None]:
        """Say what a failed write means for the run."""
        try:
            yield
        except OSError as error:
            if trainer.last_checkpoint is not None:
                where = f"the last checkpoint, {trainer.last_checkpoint}, is whole"
            else:
                where = "there is no checkpoint yet"
            raise MetricsError(
                f"train: {self.file.path} could not be written at step {trainer.step} "
                f"({error.strerror or error}); {where}. Make room or repair the folder, then "
                "continue with --resume"
            ) from error
