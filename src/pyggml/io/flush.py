# SPDX-License-Identifier: MIT
"""Flush files and folders to the disk, so that a loss of power keeps what was written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["fsync_path", "fsync_tree", "make_dirs"]


def fsync_path(path: Path) -> None:
    """Flush one file or directory to the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only POSIX opens directories
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_tree(path: str | os.PathLike[str]) -> None:
    """Flush a directory, all files and all directories below it to the disk.

    Args:
        path: a directory.
    """
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink():
                fsync_path(file)
        fsync_path(Path(folder))


def make_dirs(path: str | os.PathLike[str]) -> None:
    """Create a directory and those above it that are missing; a loss of power keeps them.

    Args:
        path: the directory; it may exist.

    Raises:
        OSError: it cannot be made, or is a file.

    Example:
        >>> make_dirs("runs/1/checkpoints")
    """
    directory = Path(path)
    if directory.is_dir():
        return
    make_dirs(directory.parent)
    if os.path.lexists(directory) and not directory.exists():
        raise FileExistsError(errno.EEXIST, "it is a link to nothing; remove it", str(directory))
    if directory.exists():
        raise NotADirectoryError(errno.ENOTDIR, "it is no folder; name another", str(directory))
    directory.mkdir(exist_ok=True)
    fsync_path(directory.parent)
