# SPDX-License-Identifier: MIT
"""The checkpoint with the lowest validation loss, kept apart from those that come and go."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...io import atomic_dir
from .checkpoint import name_latest, write_checkpoint
from .folders import BEST, CheckpointError, newest, read_best
from .state import TrainState

if TYPE_CHECKING:
    from ..trainer import Trainer

__all__ = ["find_best", "judge", "keep_best"]


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
    if same is not None:
        return _put_best(path, lambda folder: _link_files(same, folder))
    _put_best(path, lambda folder: write_checkpoint(folder, state, model, optimizer))
    name_latest(path)
    return path


def _put_best(path: Path, write: Callable[[Path], None]) -> Path:
    """Let a folder be written, and put it in the place of the best one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_dir(path, replace=True) as folder:
            write(folder)
    except OSError as error:
        other = newest(path.parent)
        kept = "there is no other checkpoint" if other is None else f"{other} is whole"
        raise CheckpointError(
            f"checkpoint: {path} could not be written ({error.strerror or error}) and is as it "
            f"was; {kept}. Make room or repair the folder, then continue with --resume"
        ) from error
    return path


def _link_files(source: Path, target: Path) -> None:
    """Give a checkpoint's files second names in another folder."""
    for file in source.iterdir():
        _link(file, target / file.name)


def _link(source: Path, target: Path) -> None:
    """A second name of a file; a copy where the file system has no such links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def find_best(trainer: Trainer) -> None:
    """Take note of the best checkpoint on the disk, so that no worse one replaces it.

    It is written where the run was killed before it could be. One that is ahead of the trainer's
    step is of another course and left alone; `clear_ahead` puts it aside.

    Args:
        trainer: that has a folder of checkpoints, and goes on from one.

    Raises:
        CheckpointError: it could not be written.
    """
    assert trainer.checkpoint_dir is not None
    kept, best = read_best(trainer.checkpoint_dir), trainer.best
    trainer.best_checkpoint = None
    if kept is not None and kept["step"] > trainer.step:
        return
    if kept is not None and (best is None or kept["loss"] < best["loss"]):
        # The checkpoint that the run goes on from does not know of it.
        trainer.best = {"stale": 0, **(best or {}), **kept}
    elif trainer.is_best and trainer.config.keep_best and (kept or {}).get("step") != trainer.step:
        is_saved = trainer._saved_step == trainer.step
        trainer.save_best(trainer.last_checkpoint if is_saved else None)
    elif kept is None and best is not None and trainer.config.keep_best:
        _bring_best(trainer.checkpoint_dir, trainer.last_checkpoint, best)
    if (trainer.checkpoint_dir / BEST).is_dir():
        trainer.best_checkpoint = trainer.checkpoint_dir / BEST


def _bring_best(directory: Path, resumed: Path | None, best: Mapping[str, Any]) -> None:
    """Keep the best checkpoint of the folder that the run goes on from, where that is another."""
    there = None if resumed is None else resumed.parent
    if there is not None and read_best(there) == {key: best[key] for key in ("step", "loss")}:
        _put_best(directory / BEST, lambda folder: _link_files(there / BEST, folder))


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
