# SPDX-License-Identifier: MIT
"""Callbacks of a Trainer: their base class, and writers of metrics and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ...checks import function, whole
from ...checks import path as check_path
from ..checkpoints.manifest import condition, cure
from ..metrics.records import EvalMetrics, MetricsError, MetricsFile, StepMetrics, append_line

__all__ = ["Callback", "MetricsWriter", "Sampler", "explained"]


class Callback:
    """The base of callbacks: override the methods of the events that you need.

    Each method gets the `Trainer` first.

    Attributes:
        undivided: handlers of signals wait until a method of the callback returns, as suits one
            that keeps rows; a method that takes long would keep a second Ctrl-C waiting.

    Example:
        >>> class Print(Callback):
        ...     def on_step(self, trainer, metrics):
        ...         print(metrics.step, metrics.loss)
    """

    undivided = False

    def on_start(self, trainer: Any) -> None:
        """Training begins or continues at `trainer.step`."""

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """An optimizer step was done."""

    def on_evaluation_start(self, trainer: Any) -> None:
        """The validation split is about to be read."""

    def on_evaluation(self, trainer: Any, metrics: EvalMetrics) -> None:
        """The validation split was read."""

    def on_checkpoint(self, trainer: Any, path: Path) -> None:
        """A checkpoint was written."""

    def on_best(self, trainer: Any, path: Path) -> None:
        """The checkpoint with the lowest validation loss so far was kept as `best`."""

    def on_sample(self, trainer: Any, text: str) -> None:
        """A sample of the model was written."""

    def on_interrupt(self, trainer: Any, signum: int) -> None:
        """A signal asked for the end; the running step is still being finished."""

    def on_end(self, trainer: Any) -> None:
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

    undivided = True  # no line is lost

    def __init__(self, path: str | Path):
        self.file = MetricsFile(check_path("MetricsWriter", "path", path))

    def on_start(self, trainer: Any) -> None:
        """Put another run's lines aside, and drop those of later steps."""
        with self._explained(trainer):
            self.file.begin(trainer.step)

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """Append the step."""
        with self._explained(trainer):
            self.file.write(metrics)

    def on_evaluation(self, trainer: Any, metrics: EvalMetrics) -> None:
        """Append the evaluation."""
        with self._explained(trainer):
            self.file.write(metrics)

    def _explained(self, trainer: Any) -> AbstractContextManager[None]:
        return explained(trainer, self.file.path)


class Sampler(Callback):
    """Samples from the model every so many steps, and keeps the samples in a file of JSON lines.

    Args:
        every: steps between samples, >= 1.
        sample: returns a sample.
        path: the file, which a new run renames where it finds one; None keeps none.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: every is below 1.
        MetricsError: from the hooks, when the file cannot be written.

    Example:
        >>> Sampler(100, lambda: "a sample of the model", "samples.jsonl").every
        100
    """

    def __init__(self, every: int, sample: Callable[[], str], path: str | Path | None = None):
        self.every = whole("Sampler", "every", every, 1)
        self._sample = function("Sampler", "sample", sample, "() -> str")
        self._path = None if path is None else check_path("Sampler", "path", path)

    def on_start(self, trainer: Any) -> None:
        """Put another run's samples aside, and drop those of steps that will be done again."""
        if self._path is not None:
            with explained(trainer, self._path):
                MetricsFile(self._path).begin(trainer.step)

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """Write a sample when it is time, and tell the callbacks of it."""
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
def explained(trainer: Any, path: Path) -> Iterator[None]:
    """Raise `MetricsError` for a failed write, with what it means for the run.

    Args:
        trainer: of the run.
        path: the file that is written.

    Raises:
        MetricsError: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise MetricsError(
            f"train: {path} could not be written at step {trainer.step} "
            f"({error.strerror or error}); {condition(trainer.last_checkpoint)}. {cure(error)}"
        ) from error
