# SPDX-License-Identifier: MIT
"""Cures for what the system refuses: memory, files, room on a disk."""

from __future__ import annotations

import errno
import os

__all__ = ["NOT_OF_A_FILE", "cure_of"]

_CURES = {
    errno.ENOSPC: "; make room on the disk and try again",
    errno.EFBIG: "; raise the limit of a file's size (ulimit -f), or write to another disk",
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
    errno.ENFILE: "; the system has no more: close other programs",
    errno.ENOMEM: "; raise the limit of the process (ulimit -v), or close other programs",
    errno.EROFS: "; the disk is read-only: write to another one",
}
NOT_OF_A_FILE = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The system's own, whatever file a flag names."""
# What the loader of libraries says where a package cannot be imported.
_SAID = {
    "failed to map segment": errno.ENOMEM,
    "annot allocate memory": errno.ENOMEM,
    "Too many open files": errno.EMFILE,
}


def cure_of(error: BaseException) -> str:
    """Return what to append to the message of an error; "" where nothing is known.

    Args:
        error: of the system, of an import, or one that such an error caused.

    Example:
        >>> cure_of(OSError(errno.EMFILE, "Too many open files"))
        '; raise the limit of open files (ulimit -n)'
    """
    if isinstance(error, OSError):
        of_system = error.strerror == os.strerror(error.errno or 0)  # others name a cure themselves
        return _CURES.get(error.errno or 0, "") if of_system else ""
    if isinstance(error, ImportError):
        return next((_CURES[number] for said, number in _SAID.items() if said in str(error)), "")
    cause = error.__cause__
    if not isinstance(cause, OSError):
        return ""
    # A run that could not be written says itself how it goes on when there is room.
    of_run = isinstance(error, RuntimeError) and cause.errno == errno.ENOSPC
    return "" if of_run else cure_of(cause)
