# SPDX-License-Identifier: MIT
"""Reading files of unknown origin: regular ones only, up to a size, unpacked up to a size."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..checks import whole
from ..errors import shown

__all__ = ["MOST_BYTES", "open_regular", "open_unpacked", "read_regular"]

MOST_BYTES = 1 << 28
"""Largest file that is read as a whole, such as a `tokenizer.json`."""
# Text packs to a tenth of its size, rarely to a fiftieth; more is a file made to fill the memory.
_MOST_RATIO = 200
_RATIO_FREE_BYTES = 64 << 20
_GZIP = b"\x1f\x8b"


def _opener(path: str, flags: int) -> int:
    """Open a file that is one: a pipe would block, a device would not end."""
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading bytes, without waiting for a pipe.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device or a folder.

    Example:
        >>> _ = Path("a.txt").write_text("a")
        >>> with open_regular("a.txt") as file:
        ...     file.read()
        b'a'
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"open_regular: path must be a path; got {shown(path)}")
    # `open` would hand `opener` bytes as bytes.
    name = os.fsdecode(path)
    try:
        return cast(BinaryIO, open(name, "rb", opener=_opener))
    except ValueError as error:  # a zero byte, or a character that no name has
        raise OSError(errno.EINVAL, str(error), name) from error


def read_regular(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file.

    Args:
        path: the file.
        most_bytes: size from which the file is not read.

    Raises:
        OSError: it cannot be read, is a pipe, a device or a folder, or is too large.
        TypeError: most_bytes is no whole number.
        ValueError: most_bytes is below 0.

    Example:
        >>> _ = Path("a.txt").write_text("a")
        >>> read_regular("a.txt")
        b'a'
    """
    most_bytes = whole("read_regular", "most_bytes", most_bytes, 0)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Not longer than it was, should it grow while it is read.
        data = file.read(size) if size <= most_bytes else b""
    if size > most_bytes:
        raise OSError(
            errno.EFBIG, f"it must have at most {most_bytes:,} bytes; got {size:,}", os.fspath(path)
        )
    return data


class _Unpacked(io.RawIOBase):
    """Bytes of a gzip file, up to a multiple of the file's size."""

    def __init__(self, packed: BinaryIO, path: str) -> None:
        self._packed, self._path = packed, path
        self._file = gzip.GzipFile(fileobj=packed)
        size = os.fstat(packed.fileno()).st_size
        self._size, self._left = size, max(_RATIO_FREE_BYTES, size * _MOST_RATIO)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except zlib.error as error:
            raise gzip.BadGzipFile(str(error)) from error
        self._left -= len(data)
        if self._left < 0:
            raise OSError(
                errno.EFBIG,
                f"its {self._size:,} bytes must unpack to at most"
                f" {max(_RATIO_FREE_BYTES, self._size * _MOST_RATIO):,}; got more; unpack it first",
                self._path,
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._packed.close()
        super().close()


def open_unpacked(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading bytes; a gzip file, known by its first bytes, is unpacked.

    Args:
        path: the file. 64 MiB, or 200 times its size, are unpacked at most.

    Raises:
        OSError: it cannot be opened or read, is a pipe, a device or a folder, or unpacks to more.
        EOFError: while it is read: it ends too early.

    Example:
        >>> _ = Path("a.gz").write_bytes(gzip.compress(b"a"))
        >>> with open_unpacked("a.gz") as file:
        ...     file.read()
        b'a'
    """
    file = open_regular(path)
    try:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
    except BaseException:
        file.close()
        raise
    if not packed:
        return file
    return cast(BinaryIO, io.BufferedReader(_Unpacked(file, str(Path(path))), 1 << 20))
