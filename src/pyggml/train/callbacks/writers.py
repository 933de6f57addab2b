# SPDX-License-Identifier: MIT
"""What may look on while a model trains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..metrics.records import EvalMetrics, MetricsError, MetricsFile, StepMetrics, append_line
from ..need import need_function, need_path

if TYPE_CHECKING:
    from ..trainer import Trainer

__all__ = ["Callback", "MetricsWriter", "Sampler", "explained"]


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

    def on_best(self, trainer: Trainer, path: Path) -> None:
        """A checkpoint with the lowest validation loss so far was put apart."""

    def on_sample(self, trainer: Trainer, text: str) -> None:
        """The model wrote something."""

    def on_interrupt(self, trainer: Trainer, signum: int) -> None:
        """A signal asked for the end; the running step is still being finished."""

    def on_end(self, trainer: Trainer) -> None:
        """Training ended: finished, interrupted or failed."""


class MetricsWriter(Callback):
    """Writes every step and evaluation to a file of JSON lines.

    A resumed run first drops the lines of steps that it will do again. A new one renames a file
    that it finds to `NAME.left`, or `NAME.left1` and so on.

    Args:
        path: the file; its folder is made when missing.

    Raises:
        MetricsError: from the hooks, when the file cannot be written; names it, the last
            checkpoint and the way on.
    """

    def __init__(self, path: str | Path):
        self.file = MetricsFile(need_path("MetricsWriter", "path", path))

    def on_start(self, trainer: Trainer) -> None:
        """Put another run's lines aside, and drop what is later than this one."""
        with self._explained(trainer):
            self.file.begin(trainer.step)

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Append the step."""
        with self._explained(trainer):
            self.file.write(metrics)

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """Append the evaluation."""
        with self._explained(trainer):
            self.file.write(metrics)

    def _explained(self, trainer: Trainer) -> AbstractContextManager[None]:
        return explained(trainer, self.file.path)


class Sampler(Callback):
    """Lets the model write now and then, and keeps what it wrote in a file of JSON lines.

    Args:
        every: steps between samples, >= 1.
        sample: writes one.
        path: the file, which a new run renames where it finds one; None keeps none.

    Raises:
        TypeError: sample is no function, or path no path.
        ValueError: every is below 1.
        MetricsError: from the hooks, when the file cannot be written.

    Example:
        >>> Sampler(100, lambda: run.sample("The"), "samples.jsonl")
    """

    def __init__(self, every: int, sample: Callable[[], str], path: str | Path | None = None):
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"Sampler: every must be an integer >= 1; got {every!r}")
        self.every = every
        self._sample = need_function("Sampler", "sample", sample, "without arguments, to a text")
        self._path = None if path is None else need_path("Sampler", "path", path)

    def on_start(self, trainer: Trainer) -> None:
        """Put another run's samples aside, and drop those of steps that will be done again."""
        if self._path is not None:
            with explained(trainer, self._path):
                MetricsFile(self._path).begin(trainer.step)

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Write a sample when it is time, and tell the others."""
        if metrics.step % self.every:
            return
        text = self._sample()
        if not isinstance(text, str):
            raise TypeError(f"Sampler: sample must give a text; got {text!r:.60}")
        trainer.tell("on_sample", text)
        if self._path is None:
            return
        line = json.dumps({"step": metrics.step, "text": text}) + "\n"
        with explained(trainer, self._path):
            append_line(self._path, line.encode())


@contextmanager
def explained(trainer: Trainer, path: Path) -> Iterator[None]:
    """Say what a failed write means for the run.

    Args:
        trainer: of the run.
        path: the file that is written.

    Raises:
        MetricsError: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        if trainer.last_checkpoint is not None:
            where = f"the checkpoint {trainer.last_checkpoint} is whole"
        else:
            where = "there is no checkpoint yet"
        raise MetricsError(
            f"train: {path} could not be written at step {trainer.step} "
            f"({error.strerror or error}); {where}. Make room or repair the folder, then "
            "continue with --resume"
        ) from error
