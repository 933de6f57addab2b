# SPDX-License-Identifier: MIT
"""Text files, found in folders and read block by block; and the manual of Python."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ... import checks
from ...errors import FormatError
from ...io.regular import open_regular, read_regular

__all__ = [
    "TEXT_SUFFIXES",
    "embedded_text",
    "file_size",
    "files_below",
    "find_files",
    "is_text",
    "read_blocks",
    "read_text",
]

TEXT_SUFFIXES = (".txt", ".text", ".md", ".markdown", ".rst")
"""The suffixes of text files that are read from a folder; a file named directly may have any."""
# Takes a folder and the files below it, returns those to read.
Choice = Callable[[Path, list[Path]], list[Path]]
_BLOCK_BYTES = 1 << 20
# A file of less than this is read to see whether it is blank.
_SHORT_BYTES = 1 << 18
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


def is_text(file: Path) -> bool:
    """Return True for a file name with a suffix of text files, such as `.txt`."""
    return file.name.lower().endswith(TEXT_SUFFIXES)


def files_below(folder: Path) -> list[Path]:
    """Return all files of a folder and those below in sorted order, hidden ones left out."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(parent, name) for name in names if not name.startswith(".")]
    return sorted(found)


def find_files(
    who: str, paths: Any, choose: Callable[[Path, list[Path]], list[Path]]
) -> list[Path]:
    """Return the files that paths name, each once, in the order given.

    Args:
        who: the caller, for messages.
        paths: one file or folder, or several.
        choose: takes a folder and its files, returns the files to read.

    Raises:
        FormatError: a path is missing, or holds nothing but white space; names it.
        TypeError: a path is no path.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: dict[str, Path] = {}
    for given in checks.items(who, "paths", paths):
        if isinstance(given, (str, os.PathLike)) and not os.fspath(given):
            raise FormatError(f"{who}: a path must not be empty; name a file, or . for a folder")
        path = checks.path(who, "paths", given)
        files = _files_of(who, path, choose)
        if all(_is_blank(who, file) for file in files):
            what = "the file is" if files == [path] else "all text files in it are"
            raise FormatError(f"{who}: {path}: must hold text; {what} empty")
        for file in files:
            found.setdefault(os.path.realpath(file), file)
    if not found:
        raise FormatError(f"{who}: needs at least one file or folder; got none")
    return list(found.values())


def _files_of(who: str, path: Path, choose: Callable[[Path, list[Path]], list[Path]]) -> list[Path]:
    """The files that a path stands for."""
    try:
        if not path.exists():
            raise FormatError(f"{who}: {path}: no such file or folder")
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise FormatError(f"{who}: {path}: is neither a regular file nor a folder")
        return choose(path, files_below(path))
    except OSError as error:
        raise FormatError(f"{who}: {path}: cannot be read: {error.strerror}") from error


def _is_blank(who: str, file: Path) -> bool:
    """Return True for an empty file, and for a short one of nothing but white space."""
    size = file_size(who, file)
    if size >= _SHORT_BYTES:
        return False
    try:
        return not read_regular(file).strip()
    except OSError as error:
        raise FormatError(f"{who}: {file}: cannot be read: {error.strerror}") from error


def file_size(who: str, file: Path) -> int:
    """Return a file's size in bytes."""
    try:
        return file.stat().st_size
    except OSError as error:
        raise FormatError(f"{who}: {file}: cannot be read: {error.strerror}") from error


def read_blocks(who: str, file: Path, report: Callable[[int], None] | None = None) -> Iterator[str]:
    """Go through the text of a file, some 1 MB at a time; a byte-order mark is dropped.

    Args:
        who: the caller, for messages.
        file: the file.
        report: told the bytes of each block that is read.

    Raises:
        FormatError: the file cannot be read, is binary, or is not UTF-8; the message has the byte
            offset.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    try:
        with open_regular(file) as handle:
            while True:
                data = handle.read(_BLOCK_BYTES)
                before = offset - len(decoder.getstate()[0])
                text = _decode(who, file, decoder, data, offset, before)
                if offset == 0:
                    text = text.removeprefix("\ufeff")
                offset += len(data)
                if report is not None:
                    report(len(data))
                if text:
                    yield text
                if not data:
                    return
    except OSError as error:
        raise FormatError(f"{who}: {file}: cannot be read: {error.strerror}") from error


def _decode(who: str, file: Path, decoder: Any, data: bytes, offset: int, before: int) -> str:
    """The text of a block; `before` is where the bytes begin that the decoder still holds."""
    for bom, name in _BOM.items():
        if not offset and data.startswith(bom):
            raise FormatError(f"{who}: {file}: text must be UTF-8; got {name}; convert it first")
    for magic, name in _PACKED.items():
        if not offset and data.startswith(magic):
            raise FormatError(f"{who}: {file}: must be text; got a {name} file; unpack it first")
    nul = data.find(0)
    if nul >= 0:
        raise FormatError(
            f"{who}: {file}: must be text; got a NUL byte at offset {offset + nul}; it is a binary"
            " file"
        )
    try:
        text: str = decoder.decode(data, final=not data)
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{who}: {file}: text must be UTF-8; got byte 0x{error.object[error.start]:02x} at"
            f" offset {before + error.start} ({error.reason}); convert the file to UTF-8 first"
        ) from error
    return text


def _text_files(folder: Path, files: list[Path]) -> list[Path]:
    """The text files among the files of a folder."""
    found = [file for file in files if is_text(file)]
    if not found:
        raise FormatError(
            f"read_text: {folder}: the folder holds no text file ({', '.join(TEXT_SUFFIXES)});"
            " name the files themselves if they end otherwise"
        )
    return found


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
    files = find_files("read_text", paths, _text_files)
    texts = ["".join(read_blocks("read_text", file)) for file in files]
    return [text for text in texts if text.strip()]


def embedded_text() -> list[str]:
    """Return English text that every Python has: the topics of its manual, about 460 kB.

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
