# SPDX-License-Identifier: MIT
"""Why a training cannot go on: the op that made the first NaN, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..debug import detect_anomaly
from ..errors import AnomalyError
from .config import TrainConfig
from .finite import NonFiniteError
from .step import Batch, TrainStep

__all__ = ["TrainingError", "diverged", "find_cause"]


class TrainingError(RuntimeError):
    """Training cannot go on; the message says whether the parameters are still good."""


def find_cause(step: TrainStep, batches: Sequence[Batch], runs: int) -> str | None:
    """Do a failed step's computation again, looking at every op.

    Args:
        step: whose parameters are as they were before the failed step.
        batches: of that step.
        runs: its number of the dropouts' masks.

    Returns:
        The op that first made what is not finite and the line that recorded it, or None when
        nothing did.
    """
    step.runs = runs
    try:
        with detect_anomaly():
            step.rerun(batches)
    except AnomalyError as error:
        return str(error)
    return None


def diverged(
    error: NonFiniteError,
    config: TrainConfig,
    step: int,
    checkpoint: Path | None,
    cause: str | None,
) -> str:
    """The message of a run that cannot go on.

    Args:
        error: what the step said.
        config: what the run was told.
        step: steps done.
        checkpoint: the last one.
        cause: what `find_cause` said.
    """
    where = f"the last checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"
    state = f"the parameters are those of step {step}"
    if error.spoiled:
        state = "the parameters are spoiled, as --fused-update had changed them by then"
    likely = f"; the cause: {cause}" if cause else ""
    return f"train: {error} at step {step + 1}; {state}, {where}{likely}: {_cure(error, config)}"


def _cure(error: NonFiniteError, config: TrainConfig) -> str:
    """What to do about it."""
    if error.source == "inputs":
        return "mend the data, or leave such rows out; no learning rate helps"
    clip = "run without --fused-update and with --clip 1"
    if not config.fused_update:
        clip = "lower --clip" if config.clip else "give --clip 1"
    precision = ", use --precision bf16 or f32" if config.precision == "f16" else ""
    rates = f"lower --lr {config.lr:g}, lengthen --warmup{precision}, or {clip}"
    if error.source == "weights":
        return f"go back to a checkpoint, or weights, without it; if a step made it, {rates}"
    return rates
