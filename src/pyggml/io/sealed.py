# SPDX-License-Identifier: MIT
"""Files whose hashes are written with them: hashed while written, and a manifest of the hashes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..errors import FormatError
from .regular import open_regular, read_regular

__all__ = ["HashedFile", "check_hash", "hash_file", "hash_of", "hashed", "read_sealed", "seal"]

_CHUNK_BYTES = 1 << 20
_FIELDS = ("size_bytes", "sha256")
# The end of a sealed file, which holds the hash of all that is before it.
_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\n\Z')


class HashedFile:
    """A file that counts and hashes the bytes that are written to it.

    Args:
        file: open for writing bytes.

    Attributes:
        size_bytes: bytes written.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        """Write bytes, or an array's memory.

        Args:
            data: what has a buffer.
        """
        view = memoryview(data)
        if not view.nbytes:  # such a view cannot be cast
            return 0
        view = view.cast("B")
        self._hash.update(view)
        self._file.write(view)
        self.size_bytes += len(view)
        return len(view)

    def record(self) -> dict[str, Any]:
        """Return size and hash of what was written, as a manifest has them."""
        return {"size_bytes": self.size_bytes, "sha256": self._hash.hexdigest()}


@contextmanager
def hashed(path: str | os.PathLike[str]) -> Iterator[HashedFile]:
    """Create a file that is hashed while it is written.

    Args:
        path: the file, in a folder that is put in place when it is whole; see `atomic_dir`.
    """
    with open(path, "wb") as file:
        yield HashedFile(file)


def hash_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def hash_file(
    path: str | os.PathLike[str], report: Callable[[int], None] = lambda size_bytes: None
) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits.

    Args:
        path: the file.
        report: told the bytes of each block that is read.

    Raises:
        OSError: it cannot be read, or is not a regular file.

    Example:
        >>> _ = Path("a.txt").write_text("a")
        >>> hash_file("a.txt")[:8]
        'ca978112'
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_CHUNK_BYTES):
            digest.update(block)
            report(len(block))
    return digest.hexdigest()


def check_hash(path: Path, record: Any, manifest: str) -> None:
    """Compare a file with the size and the hash that a manifest has of it.

    Args:
        path: the file.
        record: the manifest's entry.
        manifest: name of the manifest, for errors.

    Raises:
        FormatError: the file is missing, cannot be read or is another; names it and the cause.
    """
    size, digest = (record.get(k) if isinstance(record, Mapping) else None for k in _FIELDS)
    if not isinstance(size, int) or not isinstance(digest, str):
        raise FormatError(
            f"{path.with_name(manifest)}: the entry of {path.name} must have"
            f" {' and '.join(_FIELDS)}; got {record!r:.60}"
        )
    try:
        with open_regular(path) as file:
            got = os.fstat(file.fileno()).st_size
        if got != size:
            raise FormatError(
                f"{path}: must have the {size:,} bytes that {manifest} says; got {got:,}: the file"
                " is damaged"
            )
        found = hash_file(path)
    except FileNotFoundError:
        raise FormatError(f"{path}: the file is missing") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    if found != digest:
        wanted, other = _until_they_differ(digest, found)
        raise FormatError(
            f"{path}: must have the SHA-256 that {manifest} says, {wanted}; got {other}: the file"
            " is damaged"
        )


def _until_they_differ(one: str, other: str) -> tuple[str, str]:
    """Return the beginnings of two hashes, long enough to tell them apart."""
    pairs = enumerate(zip(one, other))  # noqa: B905 - one from a file may be shorter
    end = max(16, 4 + next((at for at, (a, b) in pairs if a != b), len(other)))
    first, second = (f"{each[:end]}…" if len(each) > end else each for each in (one, other))
    return first, second


def seal(record: Mapping[str, Any]) -> bytes:
    """Return the JSON of a record whose last field is the hash of everything before it.

    Args:
        record: JSON-ready values by name, at least one.

    Example:
        >>> print(seal({"step": 3}).decode()[:26])
        {
         "step": 3,
         "sha256": "
    """
    body = json.dumps(record, indent=1).encode()[:-2]
    return body + f',\n "sha256": "{hash_of(body)}"\n}}\n'.encode()


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the record of a file that `seal` made, without the hash.

    Args:
        path: the file.

    Raises:
        FormatError: a bit of it is another than was written.
        OSError: it cannot be read, or is not a regular file.
    """
    data = read_regular(path)
    found = _SEAL.search(data)
    if found is None:
        raise FormatError(f"{path}: must end with the SHA-256 of its content: the file is damaged")
    body = data[: found.start()]
    if hash_of(body) != found[1].decode():
        wanted, got = _until_they_differ(found[1].decode(), hash_of(body))
        raise FormatError(
            f"{path}: the content must have the SHA-256 at its end, {wanted}; got {got}: the file"
            " is damaged"
        )
    try:
        record = json.loads(body + b"\n}")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: cannot be read as JSON: {error}") from error
    return dict(record)
