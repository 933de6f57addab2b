# SPDX-License-Identifier: MIT
"""Importance matrices in llama.cpp's format before GGUF, usually named `imatrix.dat`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...io import open_regular, read_regular

__all__ = ["is_dat", "read_dat"]


def is_dat(path: str | os.PathLike[str]) -> bool:
    """Return True for a file that is no GGUF file.

    Args:
        path: the file; one that cannot be opened, and a pipe, is none.
    """
    try:
        with open_regular(path) as file:
            return file.read(4) not in (b"GGUF", b"")
    except OSError:
        return False


class _Bytes:
    """The content of a file, read from its begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.rest = memoryview(read_regular(path))
        except OSError as error:
            raise FormatError(
                f"read_importance: {path}: cannot be read: {error.strerror}"
            ) from error

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        if not 0 <= size <= len(self.rest):
            raise FormatError(
                f"read_importance: {self.path}: must be a GGUF file, or llama.cpp's format before"
                f" it; got {len(self.rest)} bytes where {size} should follow"
            )
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self) -> int:
        """Return the next number, an i32."""
        return int.from_bytes(self.take(4), "little", signed=True)

    def text(self) -> str:
        """Return the next text, which its length leads."""
        return bytes(self.take(self.number())).decode("utf-8", "replace")


def read_dat(
    path: str | os.PathLike[str],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str], int]:
    """Read values, counts, names of the texts, and the number of chunks.

    A matrix's counts are the times that it was used, not tokens.

    Args:
        path: the file.

    Raises:
        FormatError: it is cut short, or holds numbers that are not finite.

    Source: common_imatrix_load_legacy of llama.cpp.
    """
    file = _Bytes(Path(path))
    values: dict[str, np.ndarray] = {}
    counts: dict[str, np.ndarray] = {}
    for _ in range(file.number()):
        name, calls = file.text(), file.number()
        found = np.frombuffer(file.take(4 * file.number()), "<f4")
        if not found.size or not np.isfinite(found).all():
            raise FormatError(
                f"read_importance: {file.path}: {name!r:.80} must hold finite numbers; got"
                f" {found.size} numbers" + (", NaN or infinity among them" if found.size else "")
            )
        # The mean squares times the calls.
        values[name] = (found / max(calls, 1)).astype(np.float32)
        counts[name] = np.array([max(calls, 1)], np.float32)
    if not values:
        raise FormatError(f"read_importance: {file.path}: holds no importance matrix")
    chunks = file.number() if file.rest else 0
    datasets = [file.text()] if file.rest else []
    return values, counts, [text for text in datasets if text], max(chunks, 0)
