# SPDX-License-Identifier: MIT
"""The mark of a training run's folder."""

from __future__ import annotations

import json
from pathlib import Path

from .regular import read_regular

__all__ = ["RUN_KIND", "is_run"]

RUN_KIND = "pyggml training run"


def is_run(folder: Path) -> bool:
    """Return True for the folder of a training run, which its `config.json` marks.

    Example:
        >>> is_run(Path("no/folder"))
        False
    """
    try:
        record = json.loads(read_regular(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("kind") == RUN_KIND
