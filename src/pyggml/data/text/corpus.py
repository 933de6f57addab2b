# SPDX-License-Identifier: MIT
"""Text wherever it lies: files, folders and rows of tables, read piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FormatError
from .._check import path_like, several
from .byte_ranges import Unit, cut, read_unit
from .documents import Documents
from .records import RECORD_SUFFIXES, is_records, read_texts
from .files import TEXT_SUFFIXES, walk
from .tokenizer import Tokenizer
from .encoding import Encoded, Settings, encode_all

__all__ = ["Corpus", "Progress", "encode_texts", "silent"]

# Bytes done and bytes in all.
Progress = Callable[[int, int], None]

# What is read of a text file at a time to make a tokenizer.
_PIECE_BYTES = 1 << 18
# What of rows or of texts in memory is tokenized at a time.
_BATCH_CHARS = 1 << 20
# Text in compressed files is about so many times as long.
_UNPACKED = 4
_COMPRESSED = (".gz", ".parquet")
# Below, starting processes takes longer than they save.
_PARALLEL_BYTES = 1 << 24
_WORKERS_MAX = 16
_ROWS = (
    "give Corpus.of(read_texts(rows, field)) where they fit into memory, else"
    " TokenStore.write(path, read_texts(rows, field), tokenizer)"
)


def silent(done: int, total: int) -> None:
    """Show nothing."""


class Corpus:
    """Documents in files of any size: read piece by piece, never all at once.

    Text files are documents, or hold several with a `separator`. Of files of records
    (`RECORD_SUFFIXES`, all but Parquet also compressed) each row is a document. A folder gives
    its text files (`TEXT_SUFFIXES`) in sorted order, folders below it included, hidden ones left
    out; where it has none, its files of records. A file reached twice is read once.

    Args:
        paths: one file or folder, or several.
        field: the field of the records that holds the text.
        separator: what stands between two documents of a text file, as "<|endoftext|>"; it is
            left out. None takes every file as one document.

    Attributes:
        files: what is read, in this order.
        left_out: files of records in folders whose text files are read.
        field: as given.
        separator: as given.
        size_bytes: of the files; an estimate of the text where they are compressed.

    Raises:
        FormatError: a path is missing, a file is empty, or a folder holds neither text nor
            records; names it.
        TypeError: a path is no path, or the field no text.
        ValueError: the separator is empty.

    Example:
        >>> corpus = Corpus(["poems/", "letters.jsonl"], field="body")  # doctest: +SKIP
        >>> tokenizer = Tokenizer.train_bpe(corpus.pieces(), 4096)  # doctest: +SKIP
        >>> store = TokenStore.build(corpus, tokenizer, "cache/")  # doctest: +SKIP
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        field: str = "text",
        separator: str | None = None,
    ) -> None:
        if not isinstance(field, str) or not field:
            raise TypeError(f"Corpus: field must be the name of a column; got {field!r}")
        if separator is not None and (not isinstance(separator, str) or not separator):
            raise ValueError(f"Corpus: separator must be text or None; got {separator!r}")
        self.field = field
        self.separator = separator
        self.left_out: list[Path] = []
        self.texts: tuple[str, ...] = ()
        self.files = self._find(paths)
        self.size_bytes = sum(map(_weight, self.files))

    @classmethod
    def of(cls, texts: Iterable[str]) -> Corpus:
        """A corpus of documents that are in memory.

        Args:
            texts: the documents.

        Raises:
            TypeError: one is no text.

        Example:
            >>> list(Corpus.of(["one", "two"]).pieces())
            ['one', 'two']
        """
        made = cls.__new__(cls)
        made.field, made.separator, made.left_out, made.files = "text", None, [], []
        made.texts = tuple(_checked_texts([texts] if isinstance(texts, str) else texts))
        made.size_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in made.texts)
        return made

    def _find(self, paths: Any) -> list[Path]:
        """The files, each once, in the order given."""
        if isinstance(paths, (str, os.PathLike)):
            paths = [paths]
        if hasattr(paths, "column_names") or not several(paths):
            raise _no_path(paths)
        found: dict[str, Path] = {}
        for given in paths:
            if not isinstance(given, (str, os.PathLike)):
                raise _no_path(given)
            if not os.fspath(given):
                raise FormatError("Corpus: a path must not be empty; name a file, or . for this")
            path = path_like("Corpus", "paths", given)
            files = self._files_of(path)
            if all(_is_blank(file) for file in files):
                what = "the file is" if files == [path] else "all text files in it are"
                raise FormatError(f"Corpus: {path}: must hold text; {what} empty")
            for file in files:
                found.setdefault(os.path.realpath(file), file)
        if not found:
            raise FormatError("Corpus: needs at least one file or folder; got none")
        return list(found.values())

    def _files_of(self, path: Path) -> list[Path]:
        """What a path stands for."""
        try:
            if not path.exists():
                raise FormatError(f"Corpus: {path}: no such file or folder")
            if path.is_file():
                return [path]
            if not path.is_dir():
                raise FormatError(f"Corpus: {path}: is neither a regular file nor a folder")
            known = walk(path)
        except OSError as error:
            raise FormatError(f"Corpus: {path}: cannot be read: {error.strerror}") from error
        texts = [file for file in known if file.name.lower().endswith(TEXT_SUFFIXES)]
        records = [file for file in known if is_records(file)]
        if not texts and not records:
            raise FormatError(
                f"Corpus: {path}: the folder holds no text file ({', '.join(TEXT_SUFFIXES)}) and"
                f" no file of records ({', '.join(RECORD_SUFFIXES)}); name the files themselves if"
                " they end otherwise"
            )
        if texts:
            self.left_out += records
        return texts or records

    @property
    def has_records(self) -> bool:
        """Whether there are files of records."""
        return any(map(is_records, self.files))

    @property
    def has_text(self) -> bool:
        """Whether there are text files."""
        return not all(map(is_records, self.files))

    def pieces(self, most_bytes: int | None = None) -> Iterator[str]:
        """Go through the text, to make a tokenizer of it.

        Long documents come in pieces, cut between a letter and a line end, so that words stay
        whole.

        Args:
            most_bytes: about how much to give, taken evenly from all of it; None gives all.

        Raises:
            FormatError: a file cannot be read as what it is; names it, and the byte or the line.

        Example:
            >>> list(Corpus.of(["one"]).pieces())
            ['one']
        """
        every = 1 if most_bytes is None else max(1, -(-self.size_bytes // max(1, most_bytes)))
        number = 0
        for piece in chain(self.texts, *map(self._pieces_of, self.files)):
            if number % every == 0:
                yield piece
            number += 1
        if not number:
            raise FormatError(f"Corpus: {self._names()}: must hold text; all documents are blank")

    def _pieces_of(self, file: Path) -> Iterator[str]:
        if is_records(file):
            yield from read_texts(file, self.field)
            return
        mark = self.separator.encode() if self.separator else None
        for unit in cut(file, mark, True, _PIECE_BYTES):
            text = read_unit(unit, "Corpus")
            if self.separator:
                yield from (part for part in text.split(self.separator) if part.strip())
            elif text.strip():
                yield text

    def _names(self) -> str:
        """The files for an error message."""
        named = ", ".join(map(str, self.files[:3])) or "the documents given"
        return named + (", …" if len(self.files) > 3 else "")

    def tokens(self, tokenizer: Tokenizer, eos: bool = True) -> Documents:
        """Tokenize all of it into memory; `TokenStore.build` is for what does not fit.

        Args:
            tokenizer: text to ids.
            eos: whether the end-of-text token follows each document.

        Raises:
            FormatError: a file cannot be read as what it is, or all of them are blank.
            ValueError: the vocabulary has no tokens for a character, or no end-of-text token.

        Example:
            >>> corpus = Corpus.of(["ab", "b"])
            >>> corpus.tokens(Tokenizer.chars(corpus.pieces())).lengths.tolist()
            [3, 2]
        """
        ids, ends, total = [np.zeros(0, np.int32)], [0], 0
        with closing(self.encode(tokenizer, eos, "<i4", 1)) as encoded:
            for part in encoded:
                ids.append(part.ids)
                ends += [total + end for end in part.ends]
                total += part.ids.size
        if not total:
            raise FormatError(f"Corpus: {self._names()}: must hold text; all documents are blank")
        return Documents(np.concatenate(ids), np.array(ends, np.int64))

    def encode(
        self, tokenizer: Tokenizer, eos: bool, dtype: str, workers: int | None = None
    ) -> Generator[Encoded, None, None]:
        """Ids of the documents, some megabytes at a time; one worker is this process."""
        check_encoding(tokenizer, eos)
        if workers is None:
            workers = min(_cores(), _WORKERS_MAX) if self.size_bytes >= _PARALLEL_BYTES else 1
        yield from encode_texts(self.texts, tokenizer, eos, dtype)
        settings = Settings(self.separator, eos, dtype)
        mark = self.separator.encode() if self.separator else None
        for records, files in groupby(self.files, is_records):
            if records:
                for file in files:
                    yield from self._encode_records(file, tokenizer, eos, dtype)
                continue
            units = _units(files, mark, tokenizer._can_cut())
            with closing(encode_all(tokenizer, units, settings, workers)) as encoded:
                yield from encoded

    def _encode_records(
        self, file: Path, tokenizer: Tokenizer, eos: bool, dtype: str
    ) -> Iterator[Encoded]:
        """Ids of a file's rows; what it reports as done adds up to the file's size."""
        left = file.stat().st_size
        try:
            for part in encode_texts(read_texts(file, self.field), tokenizer, eos, dtype):
                done = min(part.size_bytes, left)
                left -= done
                yield part._replace(size_bytes=done)
        except FormatError:
            raise
        except ValueError as error:
            raise FormatError(f"Corpus: {file}: {error}") from error
        yield Encoded(np.zeros(0, dtype), [], left)

    def __repr__(self) -> str:
        what = f"{len(self.files)} files" if self.files else f"{len(self.texts)} documents"
        return f"Corpus({what}, {self.size_bytes:,} bytes)"


def check_encoding(tokenizer: Any, eos: bool) -> None:
    """Raise unless it is a tokenizer, and has the end of text that is asked for."""
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"TokenStore: tokenizer must be a Tokenizer; got {type(tokenizer).__name__}"
        )
    if eos and tokenizer.eos_id is None:
        raise ValueError("TokenStore: the tokenizer has no end-of-text token; use eos=False")


def encode_texts(
    texts: Iterable[str], tokenizer: Tokenizer, eos: bool, dtype: str
) -> Iterator[Encoded]:
    """Ids of documents as they come; blank ones are left out."""
    head = [tokenizer.bos_id] if eos and tokenizer.add_bos else []
    tail = [tokenizer.eos_id] if eos else []

    def encode(batch: list[str]) -> Encoded:
        parts = [np.zeros(0, dtype)]
        ends: list[int] = []
        total = 0
        for ids, (starts, stops) in tokenizer._encode_pieces(batch):
            whole = [*(head if starts else []), *ids, *(tail if stops else [])]
            parts.append(np.array(whole, dtype))
            total += len(whole)
            if stops:
                ends.append(total)
        size = sum(len(text.encode()) for text in batch)
        return Encoded(np.concatenate(parts), ends, size)

    batch: list[str] = []
    size = 0
    for text in texts:
        if not text.strip():
            continue
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARS:
            yield encode(batch)
            batch, size = [], 0
    if batch:
        yield encode(batch)


def _no_path(given: Any) -> TypeError:
    """The error of what is no path; of rows, with what takes them."""
    is_rows = hasattr(given, "column_names")
    got = f"a {type(given).__name__} of rows" if is_rows else f"{given!r:.60}"
    cure = ""
    if is_rows or isinstance(given, Mapping):
        cure = f": for rows {_ROWS}"
    return TypeError(f"Corpus: paths must be paths of files or folders; got {got}{cure}")


def _checked_texts(texts: Any) -> Iterator[str]:
    if not several(texts):
        raise TypeError(f"Corpus.of: texts must be documents; got {texts!r}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"Corpus.of: documents must be texts; document {number} is a {type(text).__name__}"
                + (f": for rows {_ROWS}" if isinstance(text, Mapping) else "")
            )
        yield text


def _units(files: Iterable[Path], mark: bytes | None, cuttable: bool) -> Iterator[Unit]:
    for file in files:
        yield from cut(file, mark, cuttable)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _weight(file: Path) -> int:
    """About how many bytes of text a file holds."""
    return file.stat().st_size * (_UNPACKED if file.name.lower().endswith(_COMPRESSED) else 1)


def _is_blank(file: Path) -> bool:
    """Whether a file holds nothing; a short one also if nothing but white space."""
    try:
        size = file.stat().st_size
        return not size or (size < _PIECE_BYTES and not file.read_bytes().strip())
    except OSError as error:
        raise FormatError(f"Corpus: {file}: cannot be read: {error.strerror}") from error
