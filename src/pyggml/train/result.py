# SPDX-License-Identifier: MIT
"""Results of a step and of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..debug.tables import html_table
from .metrics.records import EvalMetrics

__all__ = ["FitResult", "StepResult"]


@dataclass(frozen=True)
class StepResult:
    """The result of an optimizer step.

    Args:
        loss: mean loss per token over the whole step; NaN where no target counted.
        tokens: tokens that had a target.
        grad_norm: global gradient norm before clipping; infinite where it overflowed.
        skipped: nothing was updated: the gradients overflowed under loss scaling, or no target
            counted.
    """

    loss: float
    tokens: int
    grad_norm: float
    skipped: bool = False


@dataclass(frozen=True)
class FitResult:
    """The result of a training.

    Args:
        step: optimizer steps done.
        loss: mean training loss of the last step, or None when none was left to do; NaN where
            none of its targets counts.
        validation: the last evaluation, or None.
        checkpoint: the last checkpoint, or None.
        elapsed_s: seconds of training since the run began.
        stopped_early: the validation loss had not fallen for as long as the patience lasts.
        best_checkpoint: that of the lowest validation loss, or None.
    """

    step: int
    loss: float | None
    validation: EvalMetrics | None
    checkpoint: Path | None
    elapsed_s: float
    stopped_early: bool = False
    best_checkpoint: Path | None = None

    def _repr_html_(self) -> str:
        """Return the fields that are known for a notebook."""
        rows = [
            ("steps", f"{self.step}{', stopped early' if self.stopped_early else ''}"),
            ("seconds", f"{self.elapsed_s:.1f}"),
        ]
        if self.loss is not None:
            rows.append(("training loss", f"{self.loss:.4f}"))
        if self.validation is not None:
            known = {
                "loss": self.validation.loss,
                "perplexity": self.validation.perplexity,
                "bits per byte": self.validation.bits_per_byte,
                **self.validation.metrics,
            }
            rows += [
                (f"{self.validation.name} {name}", f"{value:.4f}")
                for name, value in known.items()
                if value is not None
            ]
        for name, path in (
            ("checkpoint", self.checkpoint),
            ("best checkpoint", self.best_checkpoint),
        ):
            if path is not None:
                rows.append((name, str(path)))
        return html_table(rows)
