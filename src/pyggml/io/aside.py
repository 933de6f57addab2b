# SPDX-License-Identifier: MIT
"""Files of others in the place of a write: moved aside, not removed."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from .flush import fsync_path, make_dirs

__all__ = ["free_name", "move_others"]

_log = logging.getLogger("pyggml.io")


def free_name(path: Path) -> Path:
    """Return a path that does not exist: `NAME.left`, `NAME.left1` and so on.

    Args:
        path: what is to be put aside.
    """
    target, n = path.with_name(f"{path.name}.left"), 1
    while os.path.lexists(target):
        target, n = path.with_name(f"{path.name}.left{n}"), n + 1
    return target


def move_others(old: Path, new: Path) -> None:
    """Move all that a directory has and its successor has not into `NAME.left`, with a warning.

    A loss of power leaves each of them in one of the two.

    Args:
        old: a directory that is about to be replaced; of a link, the target stays as it is.
        new: the directory that takes its place.

    Raises:
        OSError: something cannot be moved.
    """
    names = [] if old.is_symlink() else sorted(set(os.listdir(old)) - set(os.listdir(new)))
    # Hidden files are those of file managers and network file systems.
    others = [name for name in names if not name.startswith(".")]
    if not others:
        return
    target = free_name(old)
    make_dirs(target)
    for name in others:
        (old / name).rename(target / name)
    fsync_path(target)  # before the caller removes `old`
    _log.warning("%s is replaced; what else was in it is in %s", old, target)
