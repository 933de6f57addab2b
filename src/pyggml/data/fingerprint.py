# SPDX-License-Identifier: MIT
"""Checksums that tell data of the same size apart.

A loader's state has it, so that a run is not resumed on what it did not begin with.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

__all__ = ["fingerprint"]

# So many elements are read whole, in some tens of milliseconds; of more, samples from everywhere.
_WHOLE = 1 << 22
_SAMPLES = 256
_SAMPLE = 4096


def fingerprint(*parts: Any) -> int:
    """A checksum of arrays, whether in memory or on disk, and of texts and numbers."""
    crc = 0
    for part in parts:
        if isinstance(part, np.ndarray):
            crc = _array(part, crc)
        else:
            crc = zlib.crc32(repr(part).encode("utf-8", "surrogatepass"), crc)
    return crc


def _array(array: np.ndarray, crc: int) -> int:
    crc = zlib.crc32(repr(array.shape).encode(), crc)
    if array.size <= _WHOLE:
        return zlib.crc32(_plain(array), crc)
    # Rows of an array of more dimensions, runs of one that has a single one.
    count = _SAMPLE if array.ndim == 1 else max(1, _SAMPLE * array.shape[0] // array.size)
    for start in np.linspace(0, len(array) - count, _SAMPLES).astype(int).tolist():
        crc = zlib.crc32(_plain(array[start : start + count]), crc)
    return crc


def _plain(array: np.ndarray) -> bytes:
    """Bytes that are the same for the same numbers, whatever type has them."""
    return array.astype("<f8" if array.dtype.kind == "f" else "<i8").tobytes()
