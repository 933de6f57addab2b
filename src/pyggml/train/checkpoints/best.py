# SPDX-License-Identifier: MIT
"""The checkpoint with the lowest validation loss, kept apart from those that come and go."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...io import atomic_dir, make_dirs
from .checkpoint import name_latest, write_checkpoint
from .folders import BEST, FILES, STATE, CheckpointError, read_best
from .manifest import cure, is_whole, whole_before
from .state import TrainState

__all__ = ["bring_best", "keep_best"]


def keep_best(
    directory: str | Path,
    state: TrainState,
    model: Mapping[str, np.ndarray],
    optimizer: Mapping[str, Any],
    same: Path | None = None,
) -> Path:
    """Replace `best/` by a checkpoint; pruning does not remove it.

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
        make_dirs(path.parent)
        with atomic_dir(path, replace=True) as folder:
            write(folder)
    except OSError as error:
        other, _ = whole_before(path.parent)
        kept = "there is no whole checkpoint" if other is None else f"{other} is whole"
        state = " and is as it was" if os.path.lexists(path) else ""
        raise CheckpointError(
            f"checkpoint: {path} could not be written ({error.strerror or error}){state}; {kept}."
            f" {cure(error)}"
        ) from error
    return path


def _link_files(source: Path, target: Path) -> None:
    """Give a checkpoint's files second names in another folder."""
    for name in (*FILES, STATE):
        _link(source / name, target / name)


def _link(source: Path, target: Path) -> None:
    """A second name of a file; a copy where the file system has no such links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def bring_best(directory: Path, resumed: Path | None, best: Mapping[str, Any]) -> bool:
    """Take over the best checkpoint of the folder that a run resumes from, if it is another one.

    Args:
        directory: folder of the run's checkpoints.
        resumed: checkpoint that it goes on from, or None.
        best: step and loss of the run's best evaluation.

    Returns:
        True where there was one, and it is whole.
    """
    there = None if resumed is None else resumed.parent
    if there is None or read_best(there) != {key: best[key] for key in ("step", "loss")}:
        return False
    if not is_whole(there / BEST):
        return False
    _put_best(directory / BEST, lambda folder: _link_files(there / BEST, folder))
    return True
