# SPDX-License-Identifier: MIT
"""Text to train on: files, folders, and the manual that comes with Python."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...errors import FormatError
from .._check import path_like, several

__all__ = ["TEXT_SUFFIXES", "embedded_text", "read_text"]

# What a folder is searched for; a file named directly may have any name.
TEXT_SUFFIXES = (".txt", ".text", ".md", ".markdown", ".rst")
_BOM = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Packed text is not always binary by its first bytes.
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh9": "bzip2",
}


def walk(path: Path) -> list[Path]:
    """All files of a folder and those below in sorted order, hidden ones left out."""
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted(found)


def find_files(path: Path) -> list[Path]:
    """The text files of a folder in sorted order, hidden ones left out; or the file itself."""
    if not path.is_dir():
        return [path]
    found = [file for file in walk(path) if file.name.lower().endswith(TEXT_SUFFIXES)]
    if not found:
        raise FormatError(
            f"read_text: {path}: the folder holds no text file ({', '.join(TEXT_SUFFIXES)});"
            " name the files themselves if they end otherwise"
        )
    return found


def decode(path: Path, data: bytes, offset: int = 0, who: str = "read_text") -> str:
    """Text of a file's bytes from an offset on, which lies between two characters."""
    for bom, name in _BOM.items():
        if not offset and data.startswith(bom):
            raise FormatError(f"{who}: {path}: text must be UTF-8; got {name}; convert it first")
    for magic, name in _PACKED.items():
        if not offset and data.startswith(magic):
            raise FormatError(f"{who}: {path}: must be text; got a {name} file; unpack it first")
    nul = data.find(0)
    if nul >= 0:
        raise FormatError(
            f"{who}: {path}: must be text; got a NUL byte at offset {offset + nul};"
            " it is a binary file"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{who}: {path}: text must be UTF-8; got byte 0x{data[error.start]:02x} at offset"
            f" {offset + error.start} ({error.reason}); convert the file to UTF-8 first"
        ) from error
    return text if offset else text.removeprefix("\ufeff")


def _read(path: Path) -> str:
    try:
        if not path.exists():
            raise FormatError(f"read_text: {path}: no such file or folder")
        if not path.is_file():
            raise FormatError(f"read_text: {path}: is neither a regular file nor a folder")
        return decode(path, path.read_bytes())
    except OSError as error:
        raise FormatError(f"read_text: {path}: cannot be read: {error.strerror}") from error


def read_text(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Read documents from files and folders.

    A folder gives its text files (`TEXT_SUFFIXES`) in sorted order, folders below it included,
    hidden ones left out. A file reached twice is read once. Line ends stay as they are; a
    UTF-8 byte-order mark is dropped.

    Args:
        paths: one file or folder, or several.

    Returns:
        One string per non-empty file, in the order given.

    Raises:
        FormatError: a path is missing, empty, binary, or not UTF-8, or a folder holds no text; the
            message names the file, and the byte offset where there is one.

    Example:
        >>> documents = read_text(["poems/", "letter.txt"])  # doctest: +SKIP
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not several(paths):
        raise TypeError(f"read_text: paths must be paths of files or folders; got {paths!r}")
    documents: dict[str, str] = {}
    for given in paths:
        if not isinstance(given, (str, os.PathLike)):
            raise TypeError(f"read_text: paths must be paths of files or folders; got {given!r}")
        if not os.fspath(given):
            raise FormatError("read_text: a path must not be empty; name a file, or . for a folder")
        path = path_like("read_text", "paths", given)
        files = find_files(path)
        texts = {os.path.realpath(file): _read(file) for file in files}
        if not any(text.strip() for text in texts.values()):
            what = "the file is" if files == [path] else "all text files in it are"
            raise FormatError(f"read_text: {path}: must hold text; {what} empty")
        for key, text in texts.items():
            if text.strip():
                documents.setdefault(key, text)
    if not documents:
        raise FormatError("read_text: needs at least one file or folder; got none")
    return list(documents.values())


def embedded_text() -> list[str]:
    """Get English text that every Python has: the topics of its manual, about 460 kB.

    Returns:
        One document per topic, in the order of the topics' names. The text differs a little
        from one Python version to the next.

    Raises:
        FormatError: this Python was installed without `pydoc_data`.

    Source: pydoc_data.topics, the Python Software Foundation; see Python's licence.

    Example:
        >>> any('The "with" statement' in document for document in embedded_text())
        True
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise FormatError(
            "embedded_text: this Python has no pydoc_data.topics; name text files instead"
        ) from error
    return [topics[name] for name in sorted(topics) if topics[name].strip()]
