# SPDX-License-Identifier: MIT
"""The output of trainings: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from ...debug.bars import Bar, PlainBar, TerminalBar
from ...train import (
    EvalMetrics,
    FitResult,
    StepMetrics,
    Trainer,
    TrainingInterrupted,
    format_bytes,
)
from ...train.callbacks.progress import Progress, format_seconds, loss_text
from ..options import named_by_flags
from ..terminal import say, shown

__all__ = [
    "ImageReporter",
    "PlainReporter",
    "RichReporter",
    "format_seconds",
    "make_reporter",
    "trained",
]

_LINES_PER_RUN = 20


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


class PlainReporter(Progress):
    """Prints plain lines, for pipes and log files."""

    def note(self, text: str) -> None:
        """Print a line."""
        say(named_by_flags(text))

    def describe(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print what is about to be trained."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.note(f"{name:<{width}}  {value}")

    def __init__(self) -> None:
        super().__init__()
        self._waited_s = self._trained_s = 0.0
        self._empty = 0
        self._before_s: float | None = None
        self._sampled: str | None = None

    def last_sample(self, text: str) -> None:
        """Print the sample at the end of the run, if there is one that was not printed yet.

        Args:
            text: the sample.
        """
        if text and text != self._sampled:
            self.sample(text)

    def _time(self, metrics: StepMetrics) -> None:
        """Add up the time of steps, the waiting in it, and the steps without targets."""
        self._empty += math.isnan(metrics.loss)
        before = 0.0 if metrics.step == 1 else self._before_s
        if before is not None:
            self._waited_s += metrics.wait_s or 0.0
            self._trained_s += metrics.elapsed_s - before
        self._before_s = metrics.elapsed_s

    def make_bar(self, total: int, done: int) -> Bar:
        """Return a bar that shows nothing: there are lines only."""
        return PlainBar(total, done)

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Move the bar, or print a line for each twentieth of the run."""
        self._time(metrics)
        super().on_step(trainer, metrics)

    def on_sample(self, trainer: Trainer, text: str) -> None:
        """Print a sample."""
        self.note(f"sample after step {trainer.step}:")
        self.sample(text)
        self._sampled = text

    def on_interrupt(self, trainer: Trainer, signum: int) -> None:
        """Answer at once, while the step is still running."""
        text = "\nstopping after this step and writing a checkpoint; once more stops at once\n"
        # Not print: a signal may arrive in the middle of another print. The same Ctrl-C may have
        # ended what reads the lines, such as tee.
        with suppress(OSError, ValueError):
            os.write(sys.stderr.fileno(), text.encode())

    def finished(self, result: FitResult) -> None:
        """Print the last line of the training."""
        scores = []
        if result.loss is not None and not math.isnan(result.loss):
            scores.append(f"training loss {result.loss:.4f}")
        if result.validation is not None:
            scores.append(f"validation loss {result.validation.loss:.4f}")
            if result.validation.perplexity is not None:
                scores.append(f"perplexity {result.validation.perplexity:.2f}")
        if self._trained_s:
            scores.append(f"data wait {self._waited_s / self._trained_s:.1%}")
        if self._empty:
            scores.append(f"{self._empty} steps skipped, as none of their targets counts")
        time = format_seconds(result.elapsed_s)
        early = ", early: the validation loss fell no more" if result.stopped_early else ""
        said = ", ".join(scores or ["saved"])
        self.note(f"finished {result.step} steps in {time}{early}: {said}")

    def sample(self, text: str) -> None:
        """Print text that the model wrote."""
        self.note(f"\nsample:\n{text}\n")

    def example(self, pieces: Sequence[tuple[str, bool]]) -> None:
        """Print an example whose trained parts stand between marks.

        Args:
            pieces: texts, each with whether it is trained.
        """
        say("".join(f"⟦{text}⟧" if trained else text for text, trained in pieces) + "\n")

    def answer(self, name: str, text: str) -> None:
        """Print a prompt or an answer of a model.

        Args:
            name: of the text.
            text: perhaps with several lines.
        """
        say(f"{name:<8} {text.strip()}")

    def written(self, paths: Sequence[Path]) -> None:
        """Print the files of the run and their sizes."""
        self.note("written:")
        for path in paths:
            slash = "/" if path.is_dir() else ""
            self.note(f"  {path}{slash}  {format_bytes(_size(path))}")


class ImageReporter(PlainReporter):
    """Prints a line for each evaluation, and twenty lines of steps where epochs are long."""

    units = "images"

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Print a line for each twentieth of the run, where epochs are long."""
        self._empty += math.isnan(metrics.loss)
        every = max(1, trainer.total_steps // _LINES_PER_RUN)
        if metrics.step % every or trainer.eval_every <= every:
            return
        self.note(
            f"step {metrics.step}/{trainer.total_steps}  loss {loss_text(metrics, 4)}  "
            f"{self.speed(trainer, metrics)}"
        )

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """Print a line."""
        more = "".join(f"  {name} {value:.2%}" for name, value in metrics.metrics.items())
        epochs = trainer.total_steps // max(1, trainer.eval_every)
        self.note(
            f"epoch {metrics.step // max(1, trainer.eval_every)}/{epochs}  validation loss "
            f"{metrics.loss:.4f}{more}"
        )


class RichReporter(PlainReporter):
    """Shows a live progress bar, and prints lines above it."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self._console = Console(highlight=False)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(shown(named_by_flags(text)), markup=False, soft_wrap=True)

    def describe(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print what is about to be trained."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(name), Text(shown(value)))
        self._console.print(table)

    def make_bar(self, total: int, done: int) -> Bar:
        """Return the bar on stdout."""
        return TerminalBar(total, done, console=self._console)

    def example(self, pieces: Sequence[tuple[str, bool]]) -> None:
        """Print an example with its trained parts in colour."""
        from rich.text import Text

        text = Text()
        for part, trained in pieces:
            text.append(shown(part), style="bold green" if trained else "dim")
        self._console.print(text, soft_wrap=True)
        self._console.print()

    def sample(self, text: str) -> None:
        """Print text that the model wrote."""
        from rich.panel import Panel
        from rich.text import Text

        self._console.print(Panel(Text(shown(text)), title="sample", title_align="left"))


def make_reporter() -> PlainReporter:
    """Return the reporter for stdout: with a bar on a terminal."""
    return RichReporter() if sys.stdout.isatty() else PlainReporter()


@contextmanager
def trained(train: Callable[..., Any], reporter: PlainReporter, **given: Any) -> Iterator[Any]:
    """Train a run: describe it first, and list its files in the end, also after Ctrl-C.

    Args:
        train: `train_llm`, `train_image` or `finetune`.
        reporter: prints the lines.
        given: further arguments of `train`.

    Yields:
        The finished run, for more lines before those of the files.
    """
    runs: list[Any] = []

    def prepared(run: Any) -> None:
        runs.append(run)
        reporter.describe(run.describe())
        if getattr(run.config.output, "show_sample", False):
            for example in run.sample():
                reporter.example(example)

    try:
        run = train(callbacks=[reporter], note=reporter.note, prepared=prepared, **given)
    except TrainingInterrupted:
        for run in runs:
            reporter.note(f"the files have {run.exported}")
            reporter.written(run.artifact.files())
        raise
    if not run.trainer.group.is_first:
        raise typer.Exit
    yield run
    reporter.written(run.artifact.files())
