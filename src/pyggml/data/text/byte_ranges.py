# SPDX-License-Identifier: MIT
"""Files cut into units of work that tokenize to the same ids as the whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import FormatError
from .files import decode

__all__ = ["UNIT_BYTES", "UNIT_BYTES_MAX", "Unit", "cut", "read_unit"]

# What a worker holds at once; what the library makes of it is up to a hundred times as much.
UNIT_BYTES = 1 << 20
# Text that nothing may cut is one unit, up to here.
UNIT_BYTES_MAX = 1 << 28
# `_pieces._AFTER_LETTER` in UTF-8, and with the line ends of Windows.
_AFTER_LETTER = re.compile(
    rb"(?:[A-Za-z]|\xc3[\x80-\x96]|\xce[\x91-\xa1]|\xd0[\x90-\xbf]|\xd1[\x80-\x8f]"
    rb"|\xe4[\xb8-\xbf][\x80-\xbf]|[\xe5-\xe8][\x80-\xbf]{2}|\xe9[\x80-\xbd][\x80-\xbf]"
    rb"|\xe9\xbe[\x80-\xa5])(?=\r?\n)"
)


class Unit(NamedTuple):
    """Bytes of a file.

    Attributes:
        path: the file.
        start: first byte.
        end: the byte after the last.
        opens: whether a document starts at `start`; else the former unit's goes on.
        closes: whether a document ends at `end`; else it goes on in the next unit.
    """

    path: str
    start: int
    end: int
    opens: bool
    closes: bool


def cut(
    path: Path, separator: bytes | None, cuttable: bool, unit_bytes: int = UNIT_BYTES
) -> Iterator[Unit]:
    """Cut a file at separators, or else where no token can span.

    Args:
        path: the file.
        separator: what stands between two documents; None takes the file as one.
        cuttable: whether words surely end between a letter and a line end.
        unit_bytes: what a unit should hold.

    Raises:
        FormatError: text of more than `UNIT_BYTES_MAX` bytes that cannot be cut.
    """
    name, size = str(path), path.stat().st_size
    start, opens = 0, True
    with open(path, "rb") as file:
        while start < size:
            wanted = unit_bytes
            while True:
                file.seek(start)
                # Some more, to see what surrounds the cut.
                data = file.read(wanted + 64 + 2 * len(separator or b""))
                if start + len(data) >= size:
                    yield Unit(name, start, size, opens, True)
                    return
                end, skip = _find(data, wanted, separator, cuttable)
                if end:
                    break
                if wanted >= UNIT_BYTES_MAX:
                    raise FormatError(
                        f"TokenStore: {path}: text must be cut every {UNIT_BYTES_MAX:,} bytes at"
                        f" least; found no place for it after byte {start:,}; give the separator"
                        " of its documents, or a byte-level tokenizer and text with line ends"
                    )
                wanted *= 2
            yield Unit(name, start, start + end, opens, closes=skip > 0)
            start, opens = start + end + skip, skip > 0


def read_unit(unit: Unit, who: str = "TokenStore") -> str:
    """The text of a unit.

    Raises:
        FormatError: it is none; names the file and the byte.
    """
    with open(unit.path, "rb") as file:
        file.seek(unit.start)
        data = file.read(unit.end - unit.start)
    if len(data) != unit.end - unit.start:
        raise FormatError(
            f"{who}: {unit.path}: must not change while it is read; it became shorter"
        )
    return decode(Path(unit.path), data, unit.start, who)


def _find(data: bytes, wanted: int, separator: bytes | None, cuttable: bool) -> tuple[int, int]:
    """Where to cut and how many bytes to leave out there; (0, 0) if nowhere."""
    if separator:
        *whole, rest = data.split(separator)  # from the left, as str.split sees them
        end = len(data) - len(rest) - len(separator)
        if whole and end > 0:
            return end, len(separator)
        if whole:
            # The data begins with a separator: an empty document of its own.
            return len(separator), 0
    if cuttable:
        for found in _AFTER_LETTER.finditer(data, min(wanted, len(data)) // 2):
            end = found.end()
            margin = len(separator or b"") - 1
            if not separator or (
                end + margin <= len(data)
                and separator not in data[max(0, end - margin) : end + margin]
            ):
                return end, 0
    return 0, 0
