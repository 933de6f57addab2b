# SPDX-License-Identifier: MIT
"""Resident memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def _status_mib(field: str) -> float | None:
    if not _STATUS.is_file():
        return None
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return None


def now_mib() -> float | None:
    """Resident memory now; None where the system does not tell."""
    return _status_mib("VmRSS")


def peak_mib() -> float | None:
    """Most resident memory so far; None where the system does not tell."""
    # Linux: getrusage's figure begins with that of the process that started this one.
    peak = _status_mib("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:
        return None
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
