# SPDX-License-Identifier: MIT
"""The checkpoint with the lowest validation loss, kept apart from those that come and go."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..io import atomic_dir
from .checkpoint import write_checkpoint
from .folders import CheckpointError, list_checkpoints
from .state import TrainState

__all__ = ["BEST", "best_step", "judge", "keep_best"]

BEST = "best"


def best_step(directory: str | Path) -> int | None:
    """The step of the best checkpoint, or None where there is none that tells it.

    Args:
        directory: folder of the run's checkpoints.
    """
    try:
        record = json.loads((Path(directory) / BEST / "state.json").read_text(encoding="utf-8"))
        step = record["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


def keep_best(
    directory: str | Path,
    state: TrainState,
    model: Mapping[str, np.ndarray],
    optimizer: Mapping[str, Any],
    same: Path | None = None,
) -> Path:
    """Make a checkpoint `best/`, in the place of the one before; pruning leaves it alone.

    Args:
        directory: folder of the run's checkpoints.
        state: where the run stands.
        model: the model's arrays by name.
        optimizer: the optimizer's state.
        same: a checkpoint of this very step, whose files are linked instead of written again.

    Returns:
        Its directory.

    Raises:
        CheckpointError: it could not be written; the one before is as it was.
    """
    path = Path(directory) / BEST
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_dir(path, replace=True) as folder:
            if same is None:
                write_checkpoint(folder, state, model, optimizer)
            else:
                for file in same.iterdir():
                    _link(file, folder / file.name)
    except OSError as error:
        others = list_checkpoints(directory)
        kept = f"{others[-1]} is whole" if others else "there is no other checkpoint"
        raise CheckpointError(
            f"checkpoint: {path} could not be written ({error.strerror or error}) and is as it "
            f"was; {kept}. Make room or repair the folder, then continue with --resume"
        ) from error
    return path


def _link(source: Path, target: Path) -> None:
    """A second name of a file; a copy where the file system has no such links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def judge(
    best: dict[str, Any] | None, step: int, loss: float, min_delta: float
) -> dict[str, Any] | None:
    """What is best after another evaluation.

    Args:
        best: what was so far: its step, its loss, and evaluations since; None before the first.
        step: of the evaluation.
        loss: that it found; a NaN is never the best.
        min_delta: by how much it must be lower.

    Example:
        >>> judge({"step": 2, "loss": 1.0, "stale": 1}, 4, 0.9, 0.0)
        {'step': 4, 'loss': 0.9, 'stale': 0}
    """
    bar = math.inf if best is None else best["loss"] - min_delta
    return {"step": step, "loss": loss, "stale": 0} if loss < bar else best
