# SPDX-License-Identifier: MIT
"""Tokens on disk: written once, read through memory maps, found again by their content."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...errors import FormatError, printable
from ...io.atomic import atomic_dir
from ...io.flush import make_dirs
from ...io.sealed import check_hash, hash_file, hash_of, hashed, read_sealed, seal
from .chunks import Chunk, cut
from .corpus import Corpus
from .documents import Documents
from .encoding import Encoded
from .record_files import is_records
from .tokenizer import Tokenizer

__all__ = ["TokenStore"]

_FORMAT = "pyggml tokens"
_VERSION = 1
_DTYPES = ("<u2", "<u4")
_INFO, _TOKENS, _DOCUMENTS = "store.json", "tokens.bin", "documents.bin"
# Is told bytes done and bytes in all.
Progress = Callable[[int, int], None]
_log = logging.getLogger("pyggml.data")


class TokenStore:
    """A folder of token ids, which may be larger than memory.

    `tokens.bin` holds the ids, two bytes each where the vocabulary allows, `documents.bin` where
    documents begin, and `store.json` what they were made of. A folder appears when it is whole.

    Args:
        path: the folder.
        check: whether to `verify` it: all of it is read, about a second for each GB; False opens it
            at once.

    Attributes:
        ids: all tokens, memory-mapped; give them to `TokenDataset` or `RandomWindows`.
        documents: the same as documents.
        vocab_size: of the tokenizer.
        info: the content of `store.json`.

    Shape:
        ids (N,)

    Raises:
        FormatError: the folder is no token store, or is damaged; names the file and the field.

    Example:
        >>> store = TokenStore.build("corpus/", tokenizer, "cache/")  # doctest: +SKIP
        >>> loader = Loader(RandomWindows(store.ids, 256), batch_size=8)  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], *, check: bool = True) -> None:
        self.path = checks.path("TokenStore", "path", path)
        check = checks.flag("TokenStore", "check", check)
        self.info = _read_info(self.path / _INFO)
        self.vocab_size = int(self.info["vocab_size"])
        self.ids = self._map(_TOKENS, self.info["dtype"], self.info["tokens"])
        offsets = self._map(_DOCUMENTS, "<i8", self.info["documents"] + 1)
        try:
            self.documents = Documents(self.ids, offsets)
        except ValueError as error:
            raise FormatError(f"{self.path / _DOCUMENTS}: {error}") from error
        if check:
            self.verify()

    def _map(self, name: str, dtype: str, count: int) -> np.ndarray:
        file = self.path / name
        wanted = count * np.dtype(dtype).itemsize
        try:
            size = file.stat().st_size
            if size != wanted:
                raise FormatError(
                    f"{file}: must have the {wanted:,} bytes that store.json says; got {size:,};"
                    " build the store again"
                )
            return np.memmap(file, dtype, "r", shape=(count,))
        except OSError as error:
            raise FormatError(f"{file}: cannot be read: {error.strerror or error}") from error

    @classmethod
    def build(
        cls,
        paths: Corpus | str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        tokenizer: Tokenizer,
        cache: str | os.PathLike[str],
        *,
        separator: str | None = None,
        field: str = "text",
        eos: bool = True,
        progress: Progress | None = None,
    ) -> TokenStore:
        """Tokenize text into a store, or open the existing store of the same text.

        The store's name in `cache` is a hash of the text, the tokenizer and the settings: the same
        text is found wherever its files lie, and changed text is not. What is found is verified,
        which takes less time than hashing the text did; where it is damaged, it is made anew, with
        a warning. No more than a few megabytes of the text are in memory.

        Args:
            paths: a `Corpus`; or files and folders, text or records, as it takes them.
            tokenizer: text to ids.
            cache: folder of stores; made if missing.
            separator: what stands between two documents of a text file; see `Corpus`, which
                brings its own.
            field: the field of records that holds the text; see `Corpus`, which brings its own.
            eos: whether the end-of-text token follows each document.
            progress: told (bytes done, bytes in all), twice for each byte: hashed and tokenized.

        Returns:
            The store; its ids equal those of `Tokenizer.encode_documents`.

        Raises:
            FormatError: a file is missing, is not what it says, or has a character that the
                vocabulary has not; names it and the byte or the line.
            ValueError: the tokenizer has no end-of-text token, or a setting is out of range.
            OSError: the cache cannot be written.
        """
        who = "TokenStore.build"
        checks.instance(who, "tokenizer", tokenizer, Tokenizer)
        corpus = paths if isinstance(paths, Corpus) else Corpus(paths, field, separator)
        report = _Report(progress, 2 * _bytes_in(corpus))
        dtype = _DTYPES[tokenizer.vocab_size > 2**16]
        chunks = corpus.chunks(tokenizer.cuttable, report.add)
        encoded = tokenizer.encode_chunks(chunks, eos, dtype, who)
        times = [file.stat().st_mtime_ns for file in corpus.files]
        sources = [_source(file, report, corpus.field) for file in corpus.files]
        sources += [_hashed(text, report) for text in corpus.texts]
        hashes = [source["sha256"] + source.get("field", "") for source in sources]
        key = _key(tokenizer, corpus.separator, eos, hashes)
        target = checks.path("TokenStore.build", "cache", cache) / f"tokens-{key[:24]}"
        if target.is_dir():
            try:
                store = cls(target)
            except FormatError as error:  # it is only a cache
                _log.warning("TokenStore.build: %s. The text is tokenized again", error)
            else:
                report.finish()
                return store
        make_dirs(target.parent)
        info = {
            "key": key,
            "vocab_size": tokenizer.vocab_size,
            "separator": corpus.separator,
            "eos": eos,
            "files": sources if corpus.files else [],
        }
        try:
            with atomic_dir(target, replace=True) as folder:
                _write(folder, encoded, dtype, info)
                _check_unchanged(corpus.files, times)
        except OSError as error:
            try:
                store = cls(target)  # another process may have been faster, with the same
            except FormatError:
                raise error from None
        else:
            store = cls(target, check=False)
        report.finish()
        return store

    @classmethod
    def write(
        cls,
        path: str | os.PathLike[str],
        documents: Iterable[str],
        tokenizer: Tokenizer,
        *,
        eos: bool = True,
    ) -> TokenStore:
        """Tokenize documents as they come, from a database or a stream for instance.

        Args:
            path: the folder to make; it must not exist.
            documents: texts; a few megabytes of them are in memory at a time.
            tokenizer: text to ids.
            eos: whether the end-of-text token follows each document.

        Raises:
            FileExistsError: the folder exists.
            ValueError: a document is no text, has a character that the vocabulary has not, or the
                tokenizer has no end-of-text token.
            OSError: the folder cannot be written.
        """
        checks.instance("TokenStore.write", "tokenizer", tokenizer, Tokenizer)
        target = checks.path("TokenStore.write", "path", path)
        dtype = _DTYPES[tokenizer.vocab_size > 2**16]
        chunks = _chunks(documents, tokenizer.cuttable)
        encoded = tokenizer.encode_chunks(chunks, eos, dtype, "TokenStore.write")
        make_dirs(target.parent)
        info = {"key": None, "vocab_size": tokenizer.vocab_size, "separator": None, "eos": eos}
        with atomic_dir(target) as folder:
            _write(folder, encoded, dtype, {**info, "files": []})
        return cls(target, check=False)

    @property
    def crc32(self) -> int:
        """CRC-32 of the ids as 32-bit integers: the same for the same ids, stored or not."""
        return int(self.info["crc32"])

    def verify(self) -> None:
        """Read the whole store and compare it with the hashes that were written with it.

        Raises:
            FormatError: one is another, a token id is not below `vocab_size`, or a file cannot be
                read; names the file and the field.
        """
        for name in (_TOKENS, _DOCUMENTS):
            try:
                check_hash(self.path / name, self.info["hashes"].get(name), _INFO)
            except FormatError as error:
                raise FormatError(f"{error}; build the store again") from error
        most = int(self.ids.max())
        if most >= self.vocab_size:
            raise FormatError(
                f"{self.path / _TOKENS}: ids must be below the vocab_size {self.vocab_size} that"
                f" {_INFO} says; got {most}; build the store again"
            )

    def __len__(self) -> int:
        """Number of tokens."""
        return int(self.ids.size)

    def __repr__(self) -> str:
        return (
            f"TokenStore({str(self.path)!r}, {len(self):,} tokens,"
            f" {len(self.documents):,} documents)"
        )


class _Report:
    """Counts bytes and reports the sum."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, size_bytes: int) -> None:
        """Add bytes that are done."""
        self._done += size_bytes
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def finish(self) -> None:
        """Report that all is done."""
        self.add(max(0, self._total - self._done))


def _chunks(documents: Iterable[Any], anywhere: bool) -> Iterator[Chunk]:
    """Chunks of documents in memory, blank ones left out."""
    for number, text in enumerate([documents] if isinstance(documents, str) else documents):
        if not isinstance(text, str):
            raise TypeError(
                f"TokenStore.write: documents must be str; document {number} is a"
                f" {type(text).__name__}"
                + (": for rows give read_texts(rows, field)" if isinstance(text, Mapping) else "")
            )
        yield from (chunk for chunk in cut([text], anywhere=anywhere) if not chunk.is_blank)


def _check_unchanged(files: list[Path], times: list[int]) -> None:
    """Raise if a file was written to since its hash was taken."""
    for file, time in zip(files, times, strict=True):
        if file.stat().st_mtime_ns != time:
            raise FormatError(
                f"TokenStore.build: {file}: must not change while it is read; it did: build again"
            )


def _bytes_in(corpus: Corpus) -> int:
    """Bytes that are read to hash a corpus."""
    return sum(file.stat().st_size for file in corpus.files) or corpus.size_bytes


def _hashed(text: str, report: _Report) -> dict[str, Any]:
    """The size and the hash of a text in memory."""
    data = text.encode()
    report.add(len(data))
    return {"bytes": len(data), "sha256": hash_of(data)}


def _source(file: Path, report: _Report, field: str) -> dict[str, Any]:
    """A file's name, size and hash, and the field of its records."""
    try:
        digest = hash_file(file, report.add)
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {error.strerror or error}") from error
    found = {"name": printable(file.name), "bytes": file.stat().st_size, "sha256": digest}
    if is_records(file):
        found["field"] = f"{''.join(file.suffixes[-2:])}:{field}"
    return found


def _key(tokenizer: Tokenizer, separator: str | None, eos: bool, hashes: list[str]) -> str:
    """A hash of all that the ids depend on."""
    ids = [tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos]
    parts = [_FORMAT, _VERSION, tokenizer.to_json(), ids, separator, eos, hashes]
    return hash_of(json.dumps(parts).encode())


def _write(folder: Path, encoded: Iterable[Encoded], dtype: str, info: dict[str, Any]) -> None:
    """Write the files of a store."""
    tokens = documents = crc = 0
    with hashed(folder / _TOKENS) as ids, hashed(folder / _DOCUMENTS) as offsets:
        offsets.write(np.zeros(1, "<i8"))
        for part in encoded:
            crc = zlib.crc32(part.ids.astype("<i4").tobytes(), crc)
            ids.write(part.ids)
            offsets.write(np.array(part.ends, "<i8") + tokens)
            tokens += part.ids.size
            documents += len(part.ends)
    if not tokens:
        raise FormatError("TokenStore: needs text to start from; all documents are empty")
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "dtype": dtype,
        "tokens": tokens,
        "documents": documents,
        "hashes": {_TOKENS: ids.record(), _DOCUMENTS: offsets.record()},
        "crc32": crc,
        **info,
    }
    (folder / _INFO).write_bytes(seal(content))


def _read_info(file: Path) -> dict[str, Any]:
    """`store.json`, checked."""
    try:
        info = read_sealed(file)
    except OSError as error:
        raise FormatError(
            f"{file}: cannot be read: {error.strerror}; TokenStore.build makes a store"
        ) from error
    if info.get("format") != _FORMAT:
        raise FormatError(f"{file}: format must be {_FORMAT!r}; this is no token store")
    if info.get("version") != _VERSION:
        raise FormatError(
            f"{file}: version must be {_VERSION}; got {info.get('version')!r}; build it again"
        )
    if info.get("dtype") not in _DTYPES:
        raise FormatError(f"{file}: dtype must be one of {_DTYPES}; got {info.get('dtype')!r}")
    for field, least in (("tokens", 1), ("documents", 1), ("vocab_size", 1), ("crc32", 0)):
        value = info.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**48:
            raise FormatError(f"{file}: {field} must be an integer >= {least}; got {value!r}")
    if not isinstance(info.get("hashes"), dict):
        raise FormatError(f"{file}: hashes must be an object; got {info.get('hashes')!r:.60}")
    return info
