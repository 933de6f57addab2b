# SPDX-License-Identifier: MIT
"""Results as tables and as lines of JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def machine() -> str:
    """The processor, as its maker calls it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def print_json(results: Iterable[dict[str, Any]]) -> None:
    """One object a line."""
    for result in results:
        print(json.dumps(result), flush=True)


def number(value: float | None, digits: int = 1) -> str:
    """A number for a table; nothing for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they must be; the first to the left, the others to the right."""
    lines = [list(head), *[list(row) for row in rows]]
    # A row may end early: its last cell is a remark and as long as it likes.
    widths = [
        max(len(row[i]) for row in lines if i < len(row) and len(row) == len(head))
        for i in range(len(head))
    ]
    for row in lines:
        full = len(row) == len(head)
        cells = [
            cell.ljust(width) if i == 0 else (cell.rjust(width) if full else cell)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        print("  ".join(cells).rstrip())
