# SPDX-License-Identifier: MIT
"""The cause of a training that cannot go on: the op that made the first NaN, and the cure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..debug import detect_anomaly
from ..errors import AnomalyError
from .batches import Batch
from .finite import NonFiniteError
from .run import Run
from .step import TrainStep

__all__ = ["TrainingError", "explain", "find_cause"]


class TrainingError(RuntimeError):
    """Training cannot go on; the message says whether the parameters are still good."""


def find_cause(step: TrainStep, batches: Sequence[Batch], runs: int) -> str | None:
    """Repeat a failed step and find the op that first made a bad number.

    Args:
        step: its parameters are as they were before the failed step.
        batches: batches of that step.
        runs: the step's number of the dropouts' masks.

    Returns:
        The op that first made a number that is not finite and the line that recorded it, or None
        where nothing did.
    """
    step.runs = runs
    try:
        with detect_anomaly():
            step.rerun(batches)
    except AnomalyError as error:
        return str(error)
    return None


def explain(
    run: Run, error: NonFiniteError, batches: Sequence[Batch], checkpoint: Path | None
) -> str:
    """Write the message of a run that cannot go on.

    Args:
        run: the run.
        error: raised by the step.
        batches: batches of the step.
        checkpoint: the last one, or None.
    """
    cause = None
    if not error.spoiled and error.source != "inputs":
        cause = find_cause(run.train_step, batches, run.step * run.options.accumulate)
    where = f"the last checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"
    state = f"the parameters are those of step {run.step}"
    if error.spoiled:
        state = "the parameters are spoiled, as `fused_update` had changed them by then"
    likely = f"; the cause: {cause}" if cause else ""
    return f"train: {error} at step {run.step + 1}; {state}, {where}{likely}: {_cure(run, error)}"


def _cure(run: Run, error: NonFiniteError) -> str:
    """Write the cure of a loss or gradient that is not finite."""
    if error.source == "inputs":
        return "mend the data, or leave such rows out; no learning rate helps"
    clip = "lower `clip`" if run.options.clip else "give `clip`=1"
    if run.optimizer.fused_update:
        clip = "run without `fused_update` and with `clip`=1"
    precision = ", use `precision`=bf16 or f32" if run.options.precision == "f16" else ""
    lr = run.optimizer.lr if run.options.lr is None else run.options.lr
    rates = f"lower `lr` {lr:g}, lengthen `warmup`{precision}, or {clip}"
    if error.source == "weights":
        return f"go back to a checkpoint, or weights, without it; if a step made it, {rates}"
    return rates
