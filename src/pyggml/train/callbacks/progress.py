# SPDX-License-Identifier: MIT
"""A callback that shows how far a training is."""

from __future__ import annotations

import math
from typing import Any

from ...debug.bars import Bar, make_bar
from ...models import LanguageModel
from ..metrics.records import EvalMetrics, StepMetrics
from .writers import Callback

__all__ = ["Progress", "format_seconds", "loss_text", "units_of"]

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


def loss_text(metrics: StepMetrics, digits: int) -> str:
    """Return the loss of a step, or the reason why there is none.

    Args:
        metrics: of the step.
        digits: after the point.
    """
    is_empty = math.isnan(metrics.loss)
    return "none, as no target counts" if is_empty else f"{metrics.loss:.{digits}f}"


def units_of(trainer: Any, given: str = "") -> str:
    """Return what the speed of a training counts.

    Args:
        trainer: of the run; a loss that has `units` of its own counts in these.
        given: by a recipe; "" is tokens for a language model, and examples for another.
    """
    own = "tokens" if isinstance(trainer.model, LanguageModel) else "examples"
    units: str = trainer.train_step.units or given or own
    return units


def _time_left(trainer: Any, metrics: StepMetrics) -> str:
    """Return the time until the last step at the present speed."""
    tokens_per_step = metrics.tokens / metrics.step
    left = (trainer.total_steps - metrics.step) * tokens_per_step
    return format_seconds(left / max(metrics.tokens_per_s, 1e-9))


class Progress(Callback):
    """Shows a bar in a terminal or a notebook, and lines of evaluations.

    Piped, or without rich in a terminal, it writes plain lines: of evaluations, and of a twentieth
    of the steps. `Trainer.fit` adds one where no callback is a `Progress`.

    Attributes:
        units: of the speed; "" says tokens of a language model, and examples of another. A loss
            that has `units` of its own counts in these.

    Example:
        >>> callbacks = [Progress()]
    """

    units = ""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._shown = ""

    def make_bar(self, total: int, done: int) -> Bar:
        """Return the bar of a run.

        Args:
            total: steps in all.
            done: steps done before.
        """
        return make_bar(total, done)

    def note(self, text: str) -> None:
        """Show a line.

        Args:
            text: the line.
        """
        if self._bar is not None:
            self._bar.note(text)

    def on_start(self, trainer: Any) -> None:
        """Show the bar."""
        self._bar = self.make_bar(trainer.total_steps, trainer.step)

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """Move the bar, or show a line for each twentieth of the run."""
        bar = self._bar
        if bar is not None and bar.is_live:
            text = f"loss {loss_text(metrics, 3)}  lr {metrics.lr:.1e}  "
            bar.update(metrics.step, text + self.speed(trainer, metrics))
            return
        every = max(1, trainer.total_steps // _LINES_PER_RUN)
        if metrics.step % every == 0 or metrics.step in (1, trainer.total_steps):
            self.note(
                f"step {metrics.step}/{trainer.total_steps}  loss {loss_text(metrics, 4)}  "
                f"lr {metrics.lr:.2e}  norm {metrics.grad_norm:.2f}  {self.speed(trainer, metrics)}"
            )

    def speed(self, trainer: Any, metrics: StepMetrics) -> str:
        """Return the speed, the MFU, the skipped steps and the time left.

        Args:
            trainer: of the run.
            metrics: of the step.
        """
        mfu = f"  MFU {metrics.mfu:.1%}" if metrics.mfu is not None else ""
        skipped = f"  skipped {metrics.skipped}" if metrics.skipped else ""
        units = units_of(trainer, self.units)
        return (
            f"{metrics.tokens_per_s:,.0f} {units}/s{mfu}{skipped}  "
            f"{_time_left(trainer, metrics)} left"
        )

    def on_evaluation_start(self, trainer: Any) -> None:
        """Show that an evaluation runs."""
        if self._bar is not None:
            self._shown = self._bar.text
            self._bar.update(self._bar.done, "evaluating")

    def on_evaluation(self, trainer: Any, metrics: EvalMetrics) -> None:
        """Show a line; the bar shows the training again."""
        scores = [f"{metrics.name} loss {metrics.loss:.4f}"]
        if metrics.perplexity is not None:
            scores.append(f"perplexity {metrics.perplexity:.2f}")
        if metrics.bits_per_byte is not None:
            scores.append(f"bits per byte {metrics.bits_per_byte:.4f}")
        scores += [f"{name} {value:.4f}" for name, value in metrics.metrics.items()]
        self.note("  ".join([f"step {metrics.step}/{trainer.total_steps}", *scores]))
        if self._bar is not None and self._bar.text == "evaluating":
            self._bar.update(self._bar.done, self._shown)

    def on_end(self, trainer: Any) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
