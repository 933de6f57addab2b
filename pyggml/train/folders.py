# SPDX-License-Identifier: MIT
"""The folder of a run's checkpoints: which there are, and which go."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ..io import clean_stale
from .need import need_path

__all__ = [
    "LATEST",
    "STATE",
    "CheckpointError",
    "clear_ahead",
    "instead",
    "latest_checkpoint",
    "list_checkpoints",
    "make_folder",
    "prune",
    "put_aside",
    "step_of",
]

STATE, LATEST = "state.json", "latest"
_NAME = re.compile(r"^step-(\d{6,})$")


class CheckpointError(RuntimeError):
    """A checkpoint, or the mark that it is the latest, could not be written.

    The earlier ones are as they were; the message says whether the new one is whole.
    """


def step_of(path: Path) -> int | None:
    """The step that a checkpoint's name tells; None where it is another name.

    Args:
        path: of a directory.

    Example:
        >>> step_of(Path("checkpoints/step-000100"))
        100
    """
    match = _NAME.match(path.name)
    return int(match[1]) if match else None


def list_checkpoints(directory: str | Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first.

    Args:
        directory: folder of a run's checkpoints; a missing one is an empty one.
    """
    directory = need_path("list_checkpoints", "directory", directory)
    if not directory.is_dir():
        return []
    found = []
    for path in directory.iterdir():
        step = step_of(path)
        if step is not None and (path / STATE).is_file():
            found.append((step, path))
    return [path for _, path in sorted(found)]


def latest_checkpoint(directory: str | Path) -> Path | None:
    """The newest complete checkpoint, after removing what killed processes left.

    Args:
        directory: folder of a run's checkpoints.

    Returns:
        Its directory, or None when there is none. A checkpoint that was renamed into place but
        not yet named by `latest` counts: it is complete.
    """
    clean_stale(need_path("latest_checkpoint", "directory", directory))
    found = list_checkpoints(directory)
    return found[-1] if found else None


def prune(directory: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what is left of half-removed ones.

    Args:
        directory: folder of the run's checkpoints.
        keep: how many stay.
    """
    for path in list_checkpoints(directory)[:-keep]:
        # Without its state a directory is no checkpoint, so that a kill during the removal
        # leaves nothing that could be taken for one.
        (path / STATE).unlink(missing_ok=True)
    for path in directory.iterdir():
        if step_of(path) is not None and path.is_dir() and not (path / STATE).exists():
            shutil.rmtree(path, ignore_errors=True)


def make_folder(directory: str | Path) -> None:
    """Make a folder for checkpoints, or refuse it before there is anything to lose.

    Args:
        directory: the folder; it may exist.

    Raises:
        CheckpointError: it cannot be made, or nothing can be written into it.
    """
    reason = ""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
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

    A run that went back to an earlier checkpoint leaves them behind as `step-000020.left`, whole;
    under their own names they would be taken for its newest.

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
    """Rename what another run left, so that this one can have its name.

    Args:
        path: a file or a folder.

    Returns:
        Its new path, which ends in `.left`, `.left1` and so on; None where there is nothing, or an
        empty file.

    Raises:
        OSError: it cannot be renamed.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return None
    target, n = path.with_name(f"{path.name}.left"), 1
    while target.exists():
        target, n = path.with_name(f"{path.name}.left{n}"), n + 1
    path.rename(target)
    return target


def instead(path: Path) -> str:
    """What to do about a damaged checkpoint.

    Args:
        path: its directory.
    """
    others = [other for other in list_checkpoints(path.parent) if other.name < path.name]
    if others:
        return f"remove {path} to continue from {others[-1].name}"
    return "restore it from a copy, or start anew with --overwrite"
