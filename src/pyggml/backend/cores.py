# SPDX-License-Identifier: MIT
"""The CPU cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["available_cores", "cores_of_quota", "wanted_threads"]

MOST_THREADS = 512  # GGML_MAX_N_THREADS
_GROUPS = "proc/self/cgroup"


def available_cores(root: Path = Path("/")) -> int:
    """Return the cores open to the process: its affinity, and the quota of its container.

    Args:
        root: where `proc` and `sys` lie.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, cores_of_quota(root) or MOST_THREADS))


def wanted_threads() -> int | None:
    """Return the number that OMP_NUM_THREADS tells, or None where it tells none from 1 to 512.

    Of a list for nested regions, it is the first.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    return count if 1 <= count <= MOST_THREADS else None


def cores_of_quota(root: Path) -> int | None:
    """Return the whole cores that control groups leave the process, or None without a quota.

    A part of a core is none: threads wait for one another, and the system stops all of them when
    the quota is used up.

    Args:
        root: where `proc` and `sys` lie.

    Source: the Linux kernel's documentation of cpu.max (version 2) and cpu.cfs_quota_us (1).
    """
    quotas = []
    for folder in _groups(root):
        quota = _version_2(folder) or _version_1(folder)
        if quota is not None:
            quotas.append(quota)
    return max(1, int(min(quotas))) if quotas else None


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the process's groups and of those above, whose quotas count too."""
    try:
        lines = (root / _GROUPS).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        # In a container the path may be that of the host, which is not to be seen from here.
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            yield base / each


def _version_2(folder: Path) -> float | None:
    """Return the cores of cpu.max, "QUOTA PERIOD" or "max PERIOD"."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _version_1(folder: Path) -> float | None:
    """Return the cores of cpu.cfs_quota_us, where -1 is no quota."""
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
