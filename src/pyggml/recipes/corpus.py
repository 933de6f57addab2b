# SPDX-License-Identifier: MIT
"""The text of a run, its tokens in memory or on disk, and its batches."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import distributed
from ..data import (
    Corpus,
    Documents,
    Loader,
    PackedDataset,
    RandomWindows,
    TokenDataset,
    Tokenizer,
    TokenStore,
    embedded_text,
)
from ..errors import ConfigError, FormatError, reason, shown
from ..train.memory import format_bytes
from .llm_config import LLMConfig
from .pairs import PairCorpus

__all__ = ["Tokens", "make_tokenizer", "read_corpus", "read_eval_texts", "split_text", "tokenize"]

# Text below this is tokenized into memory, in seconds; above it, onto the disk.
_IN_MEMORY_BYTES = 16_000_000
# A vocabulary of bytes and merges is the same from so much of a text as from all of it.
_VOCABULARY_BYTES = 64_000_000
_NOTES = 10

Note = Callable[[str], None]


@dataclass(frozen=True)
class Tokens:
    """A tokenized text.

    Args:
        documents: its documents; their ids may be memory-mapped.
        crc32: checksum of the ids as 32-bit integers, the same in memory and on disk, and of which
            are prompts.
        folder: of the token store, or None in memory.
    """

    documents: Documents
    crc32: int
    folder: Path | None = None

    @property
    def ids(self) -> np.ndarray:
        """The tokens of all documents, one after another."""
        return self.documents.ids


def read_corpus(config: LLMConfig, note: Note) -> Corpus:
    """Return the text of a run, of which nothing is read yet.

    Args:
        config: its paths, field and separator.
        note: called with a line for each kind of files that are left out.

    Raises:
        ConfigError: an option is for text of another kind.
        FormatError: a file is missing or empty.
    """
    for text in config.data.eval_text:
        _eval_corpus(text, config)  # a missing file is told before anything is tokenized
    if not config.data.text:
        return Corpus.of(embedded_text())
    if config.data.pair_fields is not None:
        return PairCorpus(config.data.text, *config.data.pair_fields)
    corpus = Corpus(config.data.text, config.data.value("field"), config.data.separator)
    read = [corpus, *(_eval_corpus(text, config) for text in config.data.eval_text)]
    if config.data.field is not None and not any(each.has_records for each in read):
        raise ConfigError(
            f"`field`={config.data.field} is for records (JSONL, CSV, Parquet); `text` names none: "
            "leave `field` out"
        )
    if config.data.separator is not None and not any(each.has_text for each in read):
        raise ConfigError(
            "`separator` is for text files; `text` names records, each of which is a document: "
            "leave `separator` out"
        )
    if corpus.left_out:
        names = ", ".join(file.name for file in corpus.left_out[:3])
        more = ", …" if len(corpus.left_out) > 3 else ""
        note(
            f"note: records beside text in a folder are left out ({names}{more}): name the files "
            "with `text` to read them"
        )
    for file in corpus.files:
        if file.suffix.lower() == ".json":
            note(
                f"note: {file} is read as text, with its braces: for records write JSONL, one "
                "object on each line"
            )
    return corpus


def make_tokenizer(config: LLMConfig, corpus: Corpus, note: Note) -> Tokenizer:
    """Return the tokenizer that a run names.

    Args:
        config: of the run.
        corpus: its text.
        note: called with a line that names it.

    Raises:
        FormatError: the text cannot be read, or the tokenizer's file.
        ConfigError: there is no such tokenizer.
        ValueError: there is no text.
    """
    most = None
    if config.data.tokenizer.startswith("bpe:") and corpus.size_bytes > _VOCABULARY_BYTES:
        most = _VOCABULARY_BYTES
    of = "" if most is None else f", from {format_bytes(most)} of {format_bytes(corpus.size_bytes)}"
    spec = config.data.tokenizer
    note(f"tokenizer: {spec}{of}")
    if spec != "chars" and not spec.startswith("bpe:"):
        return _read_tokenizer(spec)
    return Tokenizer.from_spec(spec, corpus.pieces(most))


def _read_tokenizer(path: str) -> Tokenizer:
    if path.isalnum() and not Path(path).exists():
        raise ConfigError(
            f"`tokenizer` must be chars, bpe:SIZE or a JSON file; got {shown(path)}: try bpe:2048"
        )
    try:
        return Tokenizer.from_spec(path, ())
    except FormatError as error:
        raise FormatError(f"`tokenizer`={reason(error)}") from error


def tokenize(corpus: Corpus, tokenizer: Tokenizer, config: LLMConfig, note: Note) -> Tokens:
    """Return the tokens of a text: small text in memory, large text in a store for later runs.

    Args:
        corpus: the text.
        tokenizer: text to ids.
        config: its `cache_dir`, with which any text goes into a store.
        note: called with lines about the store and its progress.

    Raises:
        FormatError: a file cannot be read as what it is.
        ConfigError: the cache cannot be written.
    """
    eos = tokenizer.eos_id is not None
    if isinstance(corpus, PairCorpus):
        return _in_memory(corpus.tokens(tokenizer, eos))
    if config.data.cache_dir is None and corpus.size_bytes < _IN_MEMORY_BYTES:
        return _in_memory(corpus.tokens(tokenizer, eos))
    cache = Path(config.data.cache_dir) if config.data.cache_dir else default_cache()
    try:
        with distributed.world().in_turn():
            store = TokenStore.build(
                corpus, tokenizer, cache, eos=eos, progress=_Progress(cache, note).told
            )
    except OSError as error:
        raise ConfigError(
            f"`cache_dir`={cache} cannot be written to ({error.strerror or error}): give another "
            "folder"
        ) from error
    return Tokens(store.documents, store.crc32, store.path)


def _in_memory(documents: Documents) -> Tokens:
    crc = zlib.crc32(documents.ids.tobytes())
    if documents.counted is not None:
        crc = zlib.crc32(documents.counted.tobytes(), crc)
    return Tokens(documents, crc)


class _Progress:
    """Reports the progress of tokenizing large text."""

    def __init__(self, cache: Path, note: Note) -> None:
        self._cache, self._note, self._said = cache, note, 0

    def told(self, done: int, total: int) -> None:
        """Take the bytes that are done; the first half is hashing, which is quick."""
        half = max(1, total // 2)
        if done <= half or total < 2 * _IN_MEMORY_BYTES:
            return
        if not self._said:
            self._note(f"tokenizing {format_bytes(half)} into {self._cache}")
            self._said = 1
        part = (done - half) * _NOTES // half
        if self._said <= part < _NOTES:
            self._note(f"tokenizing: {100 * part // _NOTES}%")
            self._said = part + 1


def default_cache() -> Path:
    """Return the folder that the system has for caches."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"], "pyggml")
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"], "pyggml", "cache")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pyggml"
    return Path.home() / ".cache" / "pyggml"


def read_eval_texts(config: LLMConfig, tokenizer: Tokenizer, note: Note) -> dict[str, Any]:
    """Return the tokens of the texts of `eval_text`; of pairs, the documents."""
    sets: dict[str, Any] = {}
    for text in config.data.eval_text:
        name, corpus = text.partition("=")[0], _eval_corpus(text, config)
        with _naming(text):
            tokens = tokenize(corpus, tokenizer, config, note)
        sets[name] = tokens.ids if config.data.pair_fields is None else tokens.documents
        if tokens.ids.size < 2:
            raise ConfigError(f"`eval_text`={text}: must hold at least 2 tokens: give more text")
    return sets


def _eval_corpus(text: str, config: LLMConfig) -> Corpus:
    path = text.partition("=")[2]
    with _naming(text):
        if config.data.pair_fields is not None:
            return PairCorpus([path], *config.data.pair_fields)
        return Corpus([path], config.data.value("field"), config.data.separator)


@contextmanager
def _naming(text: str) -> Iterator[None]:
    """Name the option in the messages about a text of `eval_text`."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"`eval_text`={text}: {reason(error)}") from error


def split_text(documents: Documents, config: LLMConfig, seq_len: int) -> tuple[Loader, Any]:
    """Return the training batches, and the tokens or rows for validation, or None."""
    return (_packed if config.data.in_rows else _windows)(documents, config, seq_len)


def _windows(documents: Documents, config: LLMConfig, seq_len: int) -> tuple[Loader, Any]:
    """Return batches of sequences of the stream of all documents."""
    ids = documents.ids
    cut = ids.size - int(ids.size * config.data.val_fraction)
    train, validation = ids[:cut], ids[cut:]
    if train.size < seq_len + 1:
        raise ConfigError(
            f"`text` must hold more than one sequence of `seq_len`={seq_len} tokens for training; "
            f"got {train.size} tokens of {ids.size}: give more text or a smaller `seq_len`"
        )
    if config.data.val_fraction and validation.size < 2:
        raise ConfigError(
            f"`val_fraction`={config.data.val_fraction} of {ids.size} tokens leaves "
            f"{validation.size} for validation: give more text, or `val_fraction`=0"
        )
    dataset: TokenDataset | RandomWindows
    if config.data.stride is not None or config.trainer.epochs is not None:
        dataset = TokenDataset(train, seq_len, config.data.stride)
    else:
        dataset = RandomWindows(train, seq_len)
    return _loader(dataset, config, seq_len), validation if config.data.val_fraction else None


def _packed(documents: Documents, config: LLMConfig, seq_len: int) -> tuple[Loader, Any]:
    """Return batches of rows of whole documents."""
    train, rest = documents, None
    try:
        if config.data.val_fraction:
            train, rest = documents.split(config.data.val_fraction)
        rows = PackedDataset(train, seq_len)
        validation = None
        if rest is not None:
            packed = PackedDataset(rest, seq_len)
            size = min(config.trainer.value("batch_size"), len(packed))
            validation = Loader(packed, size, shuffle=False, pad_last=True)
    except ValueError as error:
        if config.data.pair_fields is not None:
            raise ConfigError(
                f"`text`, `val_fraction`={config.data.val_fraction}, `seq_len`={seq_len}: "
                f"{reason(error)}: give more pairs, shorter prompts, or a larger `seq_len`"
            ) from error
        raise ConfigError(
            f"`packing` needs documents, some of them for validation (`val_fraction` "
            f"{config.data.val_fraction}); got {len(documents)}: give more files or records, tell "
            "what stands between documents with `separator`, or leave `packing` out"
        ) from error
    return _loader(rows, config, seq_len), validation


def _loader(dataset: Any, config: LLMConfig, seq_len: int) -> Loader:
    """Return shuffled batches."""
    batch_size = config.trainer.value("batch_size")
    if len(dataset) < batch_size:
        raise ConfigError(
            f"`batch_size` must be at most the number of training sequences; got "
            f"`batch_size`={batch_size} and {len(dataset)} sequences of {seq_len} tokens: "
            f"use `batch_size`={len(dataset)}, a smaller `seq_len`, or more text"
        )
    return Loader(dataset, batch_size, seed=config.trainer.seed)
