# SPDX-License-Identifier: MIT
"""What may look on while a model trains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .metrics import EvalMetrics, MetricsFile, StepMetrics

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
    """

    def __init__(self, path: str | Path):
        self.file = MetricsFile(path)

    def on_start(self, trainer: Trainer) -> None:
        """Drop what is later than the run."""
        self.file.truncate_after(trainer.step)

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Append the step."""
        self.file.write(metrics)

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """Append the evaluation."""
        self.file.write(metrics)
