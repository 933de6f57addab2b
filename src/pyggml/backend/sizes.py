# SPDX-License-Identifier: MIT
"""Numbers of bytes as text, and back."""

from __future__ import annotations

import re

from ..checks import number, whole

__all__ = ["format_bytes", "parse_bytes"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
_FACTORS = {"": 1, "b": 1} | {
    f"{letter}{mark}": base**power
    for power, letter in enumerate("kmgt", 1)
    for mark, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]{0,3})")


def format_bytes(size_bytes: int) -> str:
    """Return a number of bytes as text, with its unit.

    Args:
        size_bytes: number of bytes.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, or not finite.

    Example:
        >>> format_bytes(12_345_678)
        '12.3 MB'
    """
    value = float(number("format_bytes", "size_bytes", size_bytes, 0))
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def parse_bytes(size: int | str) -> int:
    """Return the number of bytes of a text such as "2GiB".

    Args:
        size: bytes, or a number with B, kB, MB, GB, TB (thousands) or KiB, MiB, GiB, TiB (1024).

    Raises:
        TypeError: it is neither a whole number nor a str.
        ValueError: it is none of these, or not above 0.

    Example:
        >>> parse_bytes("1.5 GiB")
        1610612736
    """
    if not isinstance(size, str):
        return whole("parse_bytes", "size", size, 1)
    match = _SIZE.fullmatch(size.strip().lower())
    if match is None or match[2] not in _FACTORS or ("." in match[1] and _FACTORS[match[2]] == 1):
        raise ValueError(f"a size must be a number of bytes, or like 500MB or 2GiB; got {size!r}")
    found = int(float(match[1]) * _FACTORS[match[2]])
    if found < 1:
        raise ValueError(f"a size must be above 0; got {size!r}")
    return found
