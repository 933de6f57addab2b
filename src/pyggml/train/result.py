# SPDX-License-Identifier: MIT
"""How a training ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .metrics.records import EvalMetrics

__all__ = ["FitResult"]


@dataclass(frozen=True)
class FitResult:
    """How a training ended.

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
