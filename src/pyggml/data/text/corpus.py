# SPDX-License-Identifier: MIT
"""Text in files, folders and rows of tables, read chunk by chunk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...errors import FormatError
from ...io.regular import open_unpacked
from .chunks import LONGEST_CHARS, Chunk, cut
from .documents import Documents
from .files import TEXT_SUFFIXES, file_size, find_files, is_text, read_blocks
from .record_files import RECORD_SUFFIXES, is_records
from .records import read_located_texts
from .tokenizer import Tokenizer

__all__ = ["Corpus", "Report", "silent"]

# Is told the bytes that were read since the last call.
Report = Callable[[int], None]

# Text in large compressed files is about so many times as long; that in others is counted.
_UNPACKED = 4
_COUNTED_BYTES = 1 << 24
_COMPRESSED = (".gz", ".parquet")
_ROWS = (
    "give Corpus.of(read_texts(rows, field)) where they fit into memory, else"
    " TokenStore.write(path, read_texts(rows, field), tokenizer)"
)


def silent(size_bytes: int) -> None:
    """Show nothing."""


class Corpus:
    """Documents in files of any size, read chunk by chunk and never all at once.

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
        size_bytes: of the text; an estimate for Parquet and compressed files of 16 MiB or more.

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
        if not checks.text("Corpus", "field", field):
            raise ValueError("Corpus: field must name a column; got ''")
        if separator is not None and not checks.text("Corpus", "separator", separator):
            raise ValueError("Corpus: separator must not be empty; got ''; None has no separator")
        _check_no_rows(paths)
        self.field = field
        self.separator = separator
        self.left_out: list[Path] = []
        self.texts: tuple[str, ...] = ()
        self.files = find_files("Corpus", paths, self._choose)
        self.size_bytes = sum(map(_text_bytes, self.files))

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

    def _choose(self, folder: Path, files: list[Path]) -> list[Path]:
        """The files of a folder that are read: text files, or records where there are none."""
        texts = [file for file in files if is_text(file)]
        records = [file for file in files if is_records(file)]
        if not texts and not records:
            raise FormatError(
                f"Corpus: {folder}: the folder holds no text file ({', '.join(TEXT_SUFFIXES)}) and"
                f" no file of records ({', '.join(RECORD_SUFFIXES)}); name the files themselves if"
                " they end otherwise"
            )
        if texts:
            self.left_out += records
        return texts or records

    @property
    def has_records(self) -> bool:
        """True if there are files of records."""
        return any(map(is_records, self.files))

    @property
    def has_text(self) -> bool:
        """True if there are text files."""
        return not all(map(is_records, self.files))

    def chunks(self, anywhere: bool = True, report: Report = silent) -> Iterator[Chunk]:
        """Go through the documents in chunks; blank documents are left out.

        Args:
            anywhere: whether long documents may be cut between a letter and a line end.
            report: told the bytes of the files, or of the texts in memory, as they are read.

        Raises:
            FormatError: a file cannot be read as what it is, or all documents are blank; names the
                file, and the byte or the line.

        Example:
            >>> [chunk.text for chunk in Corpus.of(["one", " "]).chunks()]
            ['one']
        """
        found = False
        for chunk in self._chunks(anywhere, report):
            if not chunk.is_blank:
                found = True
                yield chunk
        if not found:
            raise FormatError(f"Corpus: {self.names}: must hold text; all documents are blank")

    def _chunks(self, anywhere: bool, report: Report) -> Iterator[Chunk]:
        for text in self.texts:
            yield from cut([text], anywhere=anywhere)
            report(len(text.encode("utf-8", "surrogatepass")))
        for file in self.files:
            if is_records(file):
                yield from self._rows(file, anywhere, report)
            else:
                blocks = read_blocks("Corpus", file, report)
                yield from cut(blocks, str(file), self.separator, anywhere, LONGEST_CHARS)

    def _rows(self, file: Path, anywhere: bool, report: Report) -> Iterator[Chunk]:
        """Chunks of a file's rows; the bytes that are told add up to the file's size."""
        left = file_size("Corpus", file)
        for text, where in read_located_texts(file, self.field):
            yield from cut([text], where, anywhere=anywhere)
            done = min(left, len(text.encode("utf-8", "surrogatepass")))
            left -= done
            report(done)
        report(left)

    def pieces(self, most_bytes: int | None = None) -> Iterator[str]:
        """Yield the text in chunks, to train a tokenizer; no word is cut.

        Args:
            most_bytes: about how much to give, taken evenly from all of it; None gives all.

        Raises:
            FormatError: a file cannot be read as what it is; names it, and the byte or the line.

        Example:
            >>> list(Corpus.of(["one"]).pieces())
            ['one']
        """
        every = 1 if most_bytes is None else max(1, -(-self.size_bytes // max(1, most_bytes)))
        for number, chunk in enumerate(self.chunks()):
            if number % every == 0:
                yield chunk.text

    @property
    def names(self) -> str:
        """The files, for a message."""
        named = ", ".join(map(str, self.files[:3])) or "the documents given"
        return named + (", …" if len(self.files) > 3 else "")

    def tokens(self, tokenizer: Tokenizer, eos: bool = True) -> Documents:
        """Tokenize the corpus into memory; use `TokenStore.build` for larger ones.

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
        checks.instance("Corpus.tokens", "tokenizer", tokenizer, Tokenizer)
        ids, ends, total = [np.zeros(0, np.int32)], [0], 0
        chunks = self.chunks(tokenizer.cuttable)
        for part in tokenizer.encode_chunks(chunks, eos, who="Corpus.tokens"):
            ids.append(part.ids)
            ends += [total + end for end in part.ends]
            total += part.ids.size
        return Documents(np.concatenate(ids), np.array(ends, np.int64))

    def __repr__(self) -> str:
        what = f"{len(self.files)} files" if self.files else f"{len(self.texts)} documents"
        return f"Corpus({what}, {self.size_bytes:,} bytes)"


def _check_no_rows(paths: Any) -> None:
    """Raise on rows in the place of paths, with what takes them."""
    rows: Any = paths
    if isinstance(paths, (list, tuple)) and paths:
        rows = paths[0]
    if hasattr(rows, "column_names") or isinstance(rows, Mapping):
        raise TypeError(
            f"Corpus: paths must be paths; got a {type(rows).__name__}: for rows {_ROWS}"
        )


def _checked_texts(texts: Any) -> Iterator[str]:
    for number, text in enumerate(checks.items("Corpus.of", "texts", texts)):
        if not isinstance(text, str):
            raise TypeError(
                f"Corpus.of: texts must be str; text {number} is a {type(text).__name__}"
                + (f": for rows {_ROWS}" if isinstance(text, Mapping) else "")
            )
        yield text


def _text_bytes(file: Path) -> int:
    """About how many bytes of text a file holds."""
    size, name = file_size("Corpus", file), file.name.lower()
    if name.endswith(".gz") and size < _COUNTED_BYTES:
        try:
            with open_unpacked(file) as packed:
                return sum(map(len, iter(lambda: packed.read(1 << 20), b"")))
        except (OSError, EOFError) as error:
            # What else is wrong with the file is told, with its place, when it is read.
            if getattr(error, "errno", None) == errno.EFBIG:
                raise FormatError(f"Corpus: {file}: {error.args[1]}") from error
    return size * (_UNPACKED if name.endswith(_COMPRESSED) else 1)
