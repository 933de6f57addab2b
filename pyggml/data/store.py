# SPDX-License-Identifier: MIT
"""Tokens on disk: written once, read through memory maps, found again by their content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import atomic_dir
from ..errors import FormatError
from ._units import Unit, cut
from ._worker import Encoded, Settings, encode_all
from .documents import Documents
from .text import find_files
from .tokenizer import Tokenizer

__all__ = ["Progress", "TokenStore"]

# Bytes done and bytes in all.
Progress = Callable[[int, int], None]

_FORMAT = "pyggml tokens"
_VERSION = 1
_DTYPES = ("<u2", "<u4")
_READ_BYTES = 1 << 20
# Below, starting processes takes longer than they save.
_PARALLEL_BYTES = 1 << 24
_WORKERS_MAX = 16


def _silent(done: int, total: int) -> None:
    """Show nothing."""


class TokenStore:
    """A folder of tokens, larger than memory if need be.

    `tokens.bin` holds the ids, two bytes each where the vocabulary allows, `documents.bin` where
    documents begin, and `store.json` what they were made of. A folder appears when it is whole.

    Args:
        path: the folder.

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

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.info = _read_info(self.path / "store.json")
        self.vocab_size = int(self.info["vocab_size"])
        self.ids = self._map("tokens.bin", self.info["dtype"], self.info["tokens"])
        offsets = self._map("documents.bin", "<i8", self.info["documents"] + 1)
        try:
            self.documents = Documents(self.ids, offsets)
        except ValueError as error:
            raise FormatError(f"{self.path / 'documents.bin'}: {error}") from error

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
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        tokenizer: Tokenizer,
        cache: str | os.PathLike[str],
        *,
        separator: str | None = None,
        eos: bool = True,
        workers: int | None = None,
        progress: Progress = _silent,
    ) -> TokenStore:
        """Tokenize text files, unless the same was done before.

        The store's name in `cache` is a hash of the text, the tokenizer and the settings: the same
        text is found wherever its files lie, and changed text is not. Of the text no more than a
        few megabytes per worker are in memory.

        Args:
            paths: files and folders, as `read_text` takes them.
            tokenizer: text to ids.
            cache: folder of stores; made if missing.
            separator: what stands between two documents of a file, as "<|endoftext|>"; it is left
                out. None takes every file as one document.
            eos: whether the end-of-text token follows each document.
            workers: processes to tokenize in; None is one for each core.
            progress: told (bytes done, bytes in all), twice for each byte: hashed and tokenized.

        Returns:
            The store; its ids are those of `Tokenizer.encode_documents`, whatever `workers`.

        Raises:
            FormatError: a file is missing, binary, not UTF-8, or has a character that the
                vocabulary has not; names it and the byte.
            ValueError: the tokenizer has no end-of-text token, or a setting is out of range.
            OSError: the cache cannot be written.
        """
        separator, workers = _check_settings(tokenizer, separator, eos, workers)
        files = _find(paths)
        total = sum(file.stat().st_size for file in files)
        if workers is None:
            workers = min(_cores(), _WORKERS_MAX) if total >= _PARALLEL_BYTES else 1
        report = _Report(progress, 2 * total)
        sources = [_source(file, report) for file in files]
        dtype = _DTYPES[tokenizer.vocab_size > 2**16]
        key = _key(tokenizer, separator, eos, [source["blake2b"] for source in sources])
        target = Path(cache) / f"tokens-{key[:24]}"
        if target.is_dir():
            with suppress(FormatError):  # a damaged one is made anew
                store = cls(target)
                report.add(total)
                return store
        target.parent.mkdir(parents=True, exist_ok=True)
        settings = Settings(separator, eos, dtype)
        mark = separator.encode() if separator else None
        units = _units(files, mark, tokenizer._can_cut())
        info = {
            "key": key,
            "vocab_size": tokenizer.vocab_size,
            "separator": separator,
            "eos": eos,
            "files": sources,
        }
        try:
            with (
                atomic_dir(target, replace=True) as folder,
                closing(encode_all(tokenizer, units, settings, workers)) as encoded,
            ):
                _write(folder, encoded, dtype, info, report)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same
                raise
        return cls(target)

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
        _check_settings(tokenizer, None, eos, 1)
        if isinstance(documents, str):
            documents = [documents]
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        dtype = _DTYPES[tokenizer.vocab_size > 2**16]
        info = {"key": None, "vocab_size": tokenizer.vocab_size, "separator": None, "eos": eos}
        with atomic_dir(target) as folder:
            encoded = _encode_stream(documents, tokenizer, eos, dtype)
            _write(folder, encoded, dtype, {**info, "files": []}, _Report(_silent, 0))
        return cls(target)

    def verify(self) -> None:
        """Read all of it and compare with the hash that was taken when it was written.

        Raises:
            FormatError: it is another.
        """
        digest = hashlib.blake2b(digest_size=32)
        with open(self.path / "tokens.bin", "rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
        if digest.hexdigest() != self.info["blake2b"]:
            raise FormatError(
                f"{self.path / 'tokens.bin'}: must have the hash of store.json; the file was"
                " changed; build the store again"
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
    """Counts bytes for whoever wants to know."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, size_bytes: int) -> None:
        """Tell that so many more bytes are done."""
        self._done += size_bytes
        self._progress(min(self._done, self._total), self._total)


def _check_settings(
    tokenizer: Tokenizer, separator: Any, eos: bool, workers: Any
) -> tuple[str | None, int | None]:
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"TokenStore: tokenizer must be a Tokenizer; got {type(tokenizer).__name__}"
        )
    if eos and tokenizer.eos_id is None:
        raise ValueError("TokenStore: the tokenizer has no end-of-text token; use eos=False")
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise ValueError(f"TokenStore: separator must be text or None; got {separator!r}")
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or workers < 1
    ):
        raise ValueError(f"TokenStore: workers must be an integer >= 1 or None; got {workers!r}")
    return separator, workers


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _find(paths: Any) -> list[Path]:
    """The files, each once, in the order given."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: dict[str, Path] = {}
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise FormatError(f"TokenStore: {path}: no such file or folder")
        for file in find_files(path):
            if not file.is_file():
                raise FormatError(f"TokenStore: {file}: is neither a regular file nor a folder")
            found.setdefault(os.path.realpath(file), file)
    if not sum(file.stat().st_size for file in found.values()):
        raise FormatError("TokenStore: needs text to start from; the files given are empty")
    return list(found.values())


def _source(file: Path, report: _Report) -> dict[str, Any]:
    """A file's name, size and hash."""
    digest = hashlib.blake2b(digest_size=32)
    size = 0
    try:
        with open(file, "rb") as handle:
            while block := handle.read(_READ_BYTES):
                digest.update(block)
                size += len(block)
                report.add(len(block))
    except OSError as error:
        raise FormatError(f"TokenStore: {file}: cannot be read: {error.strerror}") from error
    return {"name": file.name, "bytes": size, "blake2b": digest.hexdigest()}


def _key(tokenizer: Tokenizer, separator: str | None, eos: bool, hashes: list[str]) -> str:
    """What the ids depend on, hashed."""
    ids = [tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos]
    parts = [_FORMAT, _VERSION, tokenizer._backend.to_str(), ids, separator, eos, hashes]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=32).hexdigest()


def _units(files: list[Path], separator: bytes | None, cuttable: bool) -> Iterator[Unit]:
    for file in files:
        yield from cut(file, separator, cuttable)


def _encode_stream(
    documents: Iterable[str], tokenizer: Tokenizer, eos: bool, dtype: str
) -> Iterator[Encoded]:
    """Gather documents into batches of some megabytes."""
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
        return Encoded(np.concatenate(parts), ends, 0)

    batch: list[str] = []
    size = 0
    for number, text in enumerate(documents):
        if not isinstance(text, str):
            raise ValueError(
                f"TokenStore.write: documents must be texts; document {number} is a"
                f" {type(text).__name__}"
            )
        if not text.strip():
            continue
        batch.append(text)
        size += len(text)
        if size >= _READ_BYTES:
            yield encode(batch)
            batch, size = [], 0
    if batch:
        yield encode(batch)


def _write(
    folder: Path, encoded: Iterable[Encoded], dtype: str, info: dict[str, Any], report: _Report
) -> None:
    """Write the files of a store."""
    digest = hashlib.blake2b(digest_size=32)
    tokens = documents = 0
    with open(folder / "tokens.bin", "wb") as ids, open(folder / "documents.bin", "wb") as offsets:
        offsets.write(np.zeros(1, "<i8").tobytes())
        for part in encoded:
            data = part.ids.tobytes()
            digest.update(data)
            ids.write(data)
            offsets.write((np.array(part.ends, "<i8") + tokens).tobytes())
            tokens += part.ids.size
            documents += len(part.ends)
            report.add(part.size_bytes)
    if not tokens:
        raise FormatError("TokenStore: needs text to start from; all documents are empty")
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "dtype": dtype,
        "tokens": tokens,
        "documents": documents,
        "blake2b": digest.hexdigest(),
        **info,
    }
    (folder / "store.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read_info(file: Path) -> dict[str, Any]:
    """`store.json`, checked."""
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(
            f"{file}: cannot be read: {error.strerror}; TokenStore.build makes a store"
        ) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not a JSON file: {error}") from error
    if not isinstance(info, dict) or info.get("format") != _FORMAT:
        raise FormatError(f"{file}: format must be {_FORMAT!r}; this is no token store")
    if info.get("version") != _VERSION:
        raise FormatError(
            f"{file}: version must be {_VERSION}; got {info.get('version')!r}; build it again"
        )
    if info.get("dtype") not in _DTYPES:
        raise FormatError(f"{file}: dtype must be one of {_DTYPES}; got {info.get('dtype')!r}")
    for field, least in (("tokens", 1), ("documents", 1), ("vocab_size", 1)):
        value = info.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**48:
            raise FormatError(f"{file}: {field} must be an integer >= {least}; got {value!r}")
    if not isinstance(info.get("blake2b"), str):
        raise FormatError(f"{file}: blake2b must be text; got {info.get('blake2b')!r}")
    return info
