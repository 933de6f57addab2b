# SPDX-License-Identifier: MIT
"""The folder of a run's checkpoints: listed, pruned and put aside."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...checks import path as check_path
from ...io import clean_stale, make_dirs
from ...io.aside import free_name
from ...io.flush import fsync_path
from ...io.sealed import read_sealed

__all__ = [
    "BEST",
    "CHECKPOINTS",
    "FILES",
    "LATEST",
    "MODEL",
    "OPTIMIZER",
    "STATE",
    "CheckpointError",
    "clear",
    "clear_ahead",
    "latest_checkpoint",
    "list_checkpoints",
    "make_folder",
    "newest",
    "prune",
    "put_aside",
    "read_best",
    "remove",
    "step_of",
]

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in that of a run."""
STATE, LATEST, BEST = "state.json", "latest", "best"
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
FILES = (MODEL, OPTIMIZER)
"""The files of a checkpoint besides its state."""
_NAME = re.compile(r"^step-(\d{6,})$")
_OWN = re.compile(r"^(step-\d{6,}|best)(\.left\d*)?$")


class CheckpointError(RuntimeError):
    """A checkpoint, or the mark that it is the latest, could not be written.

    The earlier ones are as they were; the message says whether the new one is whole.
    """


def step_of(path: Path) -> int | None:
    """Return the step in a checkpoint's name; None for another name.

    Args:
        path: of a directory.

    Example:
        >>> step_of(Path("checkpoints/step-000100"))
        100
    """
    match = _NAME.match(path.name)
    return int(match[1]) if match else None


def read_best(directory: str | Path) -> dict[str, Any] | None:
    """Return step and loss of the best checkpoint, or None.

    Args:
        directory: folder of the run's checkpoints.
    """
    try:
        record = read_sealed(Path(directory) / BEST / STATE)
        step, loss = record["step"], record["best"]["loss"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    known = isinstance(step, int) and isinstance(loss, (int, float))
    return {"step": step, "loss": loss} if known else None


def list_checkpoints(directory: str | Path) -> list[Path]:
    """Return the complete checkpoints of a folder, oldest first, without `best`.

    Args:
        directory: folder of a run's checkpoints; a missing one is an empty one.
    """
    directory = check_path("list_checkpoints", "directory", directory)
    if not directory.is_dir():
        return []
    found = []
    for path in directory.iterdir():
        step = step_of(path)
        if step is not None and (path / STATE).is_file():
            found.append((step, path))
    return [path for _, path in sorted(found)]


def latest_checkpoint(directory: str | Path) -> Path | None:
    """Return the newest complete checkpoint, after removing what killed processes left.

    Args:
        directory: folder of a run's checkpoints.

    Returns:
        Its directory, or None when there is none. The best checkpoint is one, too. A checkpoint
        that was renamed into place but not yet named by `latest` counts: it is complete.
    """
    clean_stale(check_path("latest_checkpoint", "directory", directory))
    return newest(directory)


def newest(directory: str | Path) -> Path | None:
    """Return the checkpoint of the latest step, or None; `best` only if no other is as new.

    Args:
        directory: folder of a run's checkpoints.
    """
    found, best = list_checkpoints(directory), Path(directory) / BEST
    last = found[-1] if found else None
    # One whose step cannot be read is better than none: reading it tells what is wrong.
    if not (best / STATE).is_file():
        return last
    if last is None:
        return best
    kept = read_best(directory)
    return best if kept is not None and kept["step"] > (step_of(last) or 0) else last


def prune(directory: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what is left of half-removed ones.

    Of a checkpoint that is a symbolic link, the link is removed and the target left alone.

    Args:
        directory: folder of the run's checkpoints.
        keep: how many stay.
    """
    for path in list_checkpoints(directory)[:-keep]:
        remove(path)
    for path in directory.iterdir():
        known = step_of(path) is not None and path.is_dir() and not path.is_symlink()
        if known and not (path / STATE).exists():
            remove(path)


def remove(path: Path) -> None:
    """Remove a checkpoint, whole or not; files that are not of one stay, with their folder.

    Args:
        path: its directory, or a symbolic link to one, of which the link is removed.
    """
    if path.is_symlink():
        path.unlink()
        return
    # Without its state a directory is no checkpoint, so that a kill during the removal leaves
    # nothing that could be taken for one.
    for name in (STATE, *FILES):
        (path / name).unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()


def clear(directory: Path) -> None:
    """Remove all checkpoints of a run, also those put aside, and no other files.

    Args:
        directory: folder of the run's checkpoints.
    """
    clean_stale(directory)
    for path in directory.iterdir():
        if path.name == LATEST:
            path.unlink()
        elif _OWN.match(path.name) and path.is_dir():
            remove(path)


def make_folder(directory: str | Path) -> None:
    """Make a folder for checkpoints; an error is raised before the training starts.

    Args:
        directory: the folder; it may exist.

    Raises:
        CheckpointError: it cannot be made, or nothing can be written into it.
    """
    reason = ""
    try:
        make_dirs(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            reason = "no permission to write"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise CheckpointError(
            f"checkpoint: {directory} cannot hold checkpoints ({reason}): give another folder"
        )


def clear_ahead(directory: str | Path, step: int) -> list[Path]:
    """Put checkpoints aside that are ahead of the step at which a run begins.

    A run that went back to an earlier checkpoint leaves them behind as `step-000020.left`, or
    `best.left`, whole; under their own names they would be taken for its newest.

    Args:
        directory: folder of the run's checkpoints; a missing one is an empty one.
        step: where the run begins.

    Returns:
        Where they are now.

    Raises:
        CheckpointError: the run begins at step 0, so that they are another run's; or one cannot be
            renamed.
    """
    ahead = [path for path in list_checkpoints(directory) if (step_of(path) or 0) > step]
    best = read_best(directory)
    if best is not None and best["step"] > step:
        # First: with the others gone it alone would be taken for the newest.
        ahead.insert(0, Path(directory) / BEST)
    if ahead and not step:
        raise CheckpointError(
            f"checkpoint: {directory} holds {ahead[-1].name} of another run, and this one begins at"
            " step 0: resume() continues there; else give another folder, or move these away"
        )
    left = []
    for path in ahead:
        try:
            target = put_aside(path)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint: {path} is ahead of step {step} and cannot be put aside"
                f" ({error.strerror or error}); move it away"
            ) from error
        left += [] if target is None else [target]
    return left


def put_aside(path: Path) -> Path | None:
    """Rename what another run left, to free its name for this run.

    Args:
        path: a file or a folder.

    Returns:
        Its new path, which ends in `.left`, `.left1` and so on; None where there is nothing, or an
        empty file.

    Raises:
        OSError: it is neither, or cannot be renamed.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        cause = "it is a pipe or a device, which stays as it is; move it away"
        raise OSError(errno.EINVAL, cause, str(path))
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    target = free_name(path)
    path.rename(target)
    fsync_path(target.parent)  # before another file gets the name
    return target
