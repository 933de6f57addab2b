# SPDX-License-Identifier: MIT
"""The memory that this process may still take."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Protocol

from .weak_set import WeakGroup

__all__ = [
    "LARGE_BYTES",
    "RELEASES_PAGES",
    "UNTOUCHED",
    "available_bytes",
    "promised_bytes",
    "release_pages",
]


class Sized(Protocol):
    """A block of memory that knows its size."""

    size_bytes: int


# Blocks of zeros that nothing has written yet: the system has promised their memory.
UNTOUCHED: WeakGroup[Sized] = WeakGroup()

# Elsewhere a process cannot give memory back and keep its addresses at once.
RELEASES_PAGES = sys.platform == "linux"
_MADV_DONTNEED = 4

# From here on Linux grants more than there is.
LARGE_BYTES = 2**28

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def _field(path: str, name: str) -> int | None:
    """The number behind a name in a file of lines."""
    try:
        # As bytes: where no memory is left, a codec cannot be imported.
        for line in Path(path).read_bytes().splitlines():
            words = line.replace(b":", b" ").split()
            if len(words) > 1 and words[0] == name.encode():
                return int(words[1])
    except (OSError, ValueError):
        pass
    return None


def _number(path: str) -> int | None:
    """The number that is all of a file."""
    try:
        return int(Path(path).read_bytes())
    except (OSError, ValueError):  # also "max"
        return None


def available_bytes() -> int | None:
    """Return the memory that Linux could give without killing a process; None if unknown.

    What the page cache holds counts as available, as in MemAvailable.
    """
    found = []
    system = _field("/proc/meminfo", "MemAvailable")
    if system is not None:
        found.append(system * 1024)
    for limit_path, usage_path, stat_path in _CGROUPS:
        limit, usage = _number(limit_path), _number(usage_path)
        if limit is not None and usage is not None:
            cached = _field(stat_path, "total_inactive_file") or _field(stat_path, "inactive_file")
            found.append(max(limit - usage + (cached or 0), 0))
    return min(found) if found else None


def promised_bytes() -> int:
    """Return the bytes of zeros that nothing has written yet."""
    return sum(block.size_bytes for block in UNTOUCHED.members())


def release_pages(begin: int, size_bytes: int) -> None:
    """Give whole pages back to the system; their addresses stay valid, their numbers are lost.

    Args:
        begin: address of the memory, which no other process shares.
        size_bytes: pages that lie in it in part are kept.

    Raises:
        OSError: the system refuses it, or is another one than Linux.
    """
    import ctypes

    if not RELEASES_PAGES:
        raise OSError(f"release_pages: the system must be Linux; got {sys.platform}")
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (begin + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first >= end:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    place, size = ctypes.c_void_p(first), ctypes.c_size_t(end - first)
    if libc.madvise(place, size, _MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), f"release_pages: {end - first} bytes stay in memory")
