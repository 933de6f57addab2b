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

from ...train import (
    Callback,
    EvalMetrics,
    FitResult,
    StepMetrics,
    Trainer,
    TrainingInterrupted,
    format_bytes,
)
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


def format_seconds(seconds: float) -> str:
    """Return a duration as text.

    Args:
        seconds: the duration.

    Example:
        >>> format_seconds(3723)
        '1:02:03'
    """
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _time_left(trainer: Trainer, metrics: StepMetrics) -> str:
    """Return the time until the last step at the present speed."""
    tokens_per_step = metrics.tokens / metrics.step
    left = (trainer.total_steps - metrics.step) * tokens_per_step
    return format_seconds(left / max(metrics.tokens_per_s, 1e-9))


def _speed(metrics: StepMetrics) -> str:
    """Return the tokens per second, the MFU and skipped steps."""
    mfu = f"  MFU {metrics.mfu:.1%}" if metrics.mfu is not None else ""
    skipped = f"  skipped {metrics.skipped}" if metrics.skipped else ""
    return f"{metrics.tokens_per_s:,.0f} tokens/s{mfu}{skipped}"


def _loss(metrics: StepMetrics, digits: int) -> str:
    """Return the loss of a step, or the reason why there is none."""
    is_empty = math.isnan(metrics.loss)
    return "none, as no target counts" if is_empty else f"{metrics.loss:.{digits}f}"


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


class PlainReporter(Callback):
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

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Print a line for each twentieth of the run."""
        self._time(metrics)
        every = max(1, trainer.total_steps // _LINES_PER_RUN)
        if metrics.step % every and metrics.step not in (1, trainer.total_steps):
            return
        self.note(
            f"step {metrics.step}/{trainer.total_steps}  loss {_loss(metrics, 4)}  "
            f"lr {metrics.lr:.2e}  norm {metrics.grad_norm:.2f}  "
            f"{_speed(metrics)}  {_time_left(trainer, metrics)} left"
        )

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """Print a line."""
        scores = [f"{metrics.name} loss {metrics.loss:.4f}"]
        if metrics.perplexity is not None:
            scores.append(f"perplexity {metrics.perplexity:.2f}")
        if metrics.bits_per_byte is not None:
            scores.append(f"bits per byte {metrics.bits_per_byte:.4f}")
        scores += [f"{name} {value:.4f}" for name, value in metrics.metrics.items()]
        self.note("  ".join([f"step {metrics.step}/{trainer.total_steps}", *scores]))

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

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Print a line for each twentieth of the run, where epochs are long."""
        self._empty += math.isnan(metrics.loss)
        every = max(1, trainer.total_steps // _LINES_PER_RUN)
        if metrics.step % every or trainer.eval_every <= every:
            return
        self.note(
            f"step {metrics.step}/{trainer.total_steps}  loss {_loss(metrics, 4)}  "
            f"{metrics.tokens_per_s:,.0f} images/s  {_time_left(trainer, metrics)} left"
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
        self._progress: Any = None
        self._task: Any = None
        self._shown = "recording"

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

    def on_start(self, trainer: Trainer) -> None:
        """Show the bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("[bold]step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            refresh_per_second=5,
        )
        self._task = self._progress.add_task(
            self._shown, total=trainer.total_steps, completed=trainer.step
        )
        self._progress.start()

    def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
        """Move the bar."""
        self._time(metrics)
        self._shown = (
            f"loss [bold]{_loss(metrics, 3)}[/]  lr {metrics.lr:.1e}  "
            f"{_speed(metrics)}  {_time_left(trainer, metrics)} left"
        )
        self._progress.update(self._task, completed=metrics.step, description=self._shown)

    def on_evaluation_start(self, trainer: Trainer) -> None:
        """Show that an evaluation runs."""
        self._progress.update(self._task, description="evaluating")

    def on_evaluation(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        """Print a line above the bar, which then shows the training again."""
        super().on_evaluation(trainer, metrics)
        self._progress.update(self._task, description=self._shown)

    def on_end(self, trainer: Trainer) -> None:
        """Leave the bar as it is."""
        self._progress.stop()

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
