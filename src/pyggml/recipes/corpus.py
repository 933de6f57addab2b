# SPDX-License-Identifier: MIT
"""From the text that a run names to its tokens, in memory or on disk, and to its batches."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
from ..train.checks import ConfigError
from ..train.config import TrainConfig
from ..train.memory import format_bytes
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
        """All tokens, one document after another."""
        return self.documents.ids


def read_corpus(config: TrainConfig, note: Note) -> Corpus:
    """The text of a run: what is to be read, and nothing of it yet.

    Args:
        config: its paths, field and separator.
        note: told of files that are left out.

    Raises:
        ConfigError: an option is for text of another kind.
        FormatError: a file is missing or empty.
    """
    for text in config.eval_text:
        _eval_corpus(text, config)  # a missing file is told before anything is tokenized
    if not config.text:
        return Corpus.of(embedded_text())
    if config.pair_fields is not None:
        return PairCorpus(config.text, *config.pair_fields)
    corpus = Corpus(config.text, config.field, config.separator)
    if config.field != TrainConfig.field and not corpus.has_records:
        raise ConfigError(
            f"--field {config.field} is for records (JSONL, CSV, Parquet); --text names none: "
            "leave --field out"
        )
    if config.separator is not None and not corpus.has_text:
        raise ConfigError(
            "--separator is for text files; --text names records, each of which is a document: "
            "leave --separator out"
        )
    if corpus.left_out:
        names = ", ".join(file.name for file in corpus.left_out[:3])
        more = ", …" if len(corpus.left_out) > 3 else ""
        note(
            f"note: records beside text in a folder are left out ({names}{more}): name the files "
            "with --text to read them"
        )
    for file in corpus.files:
        if file.suffix.lower() == ".json":
            note(
                f"note: {file} is read as text, with its braces: for records write JSONL, one "
                "object on each line"
            )
    return corpus


def make_tokenizer(config: TrainConfig, corpus: Corpus, note: Note) -> Tokenizer:
    """The tokenizer that a run names.

    Args:
        config: of the run.
        corpus: its text.
        note: told what is made.

    Raises:
        FormatError: the text cannot be read, or the tokenizer's file.
        ValueError: there is no text.
    """
    most = None
    if config.tokenizer.startswith("bpe:") and corpus.size_bytes > _VOCABULARY_BYTES:
        most = _VOCABULARY_BYTES
    of = "" if most is None else f", from {format_bytes(most)} of {format_bytes(corpus.size_bytes)}"
    note(f"tokenizer: {config.tokenizer}{of}")
    return Tokenizer.from_spec(config.tokenizer, corpus.pieces(most))


def tokenize(corpus: Corpus, tokenizer: Tokenizer, config: TrainConfig, note: Note) -> Tokens:
    """The tokens of a text: small ones in memory, large ones in a store that is found again.

    Args:
        corpus: the text.
        tokenizer: text to ids.
        config: its `cache_dir`, with which any text goes into a store.
        note: told of the store, and how far it is.

    Raises:
        FormatError: a file cannot be read as what it is.
        ConfigError: the cache cannot be written.
    """
    eos = tokenizer.eos_id is not None
    if isinstance(corpus, PairCorpus):
        return _in_memory(corpus.tokens(tokenizer, eos))
    if config.cache_dir is None and corpus.size_bytes < _IN_MEMORY_BYTES:
        return _in_memory(corpus.tokens(tokenizer, eos))
    cache = Path(config.cache_dir) if config.cache_dir else default_cache()
    try:
        store = TokenStore.build(
            corpus, tokenizer, cache, eos=eos, progress=_Progress(cache, note).told
        )
    except OSError as error:
        raise ConfigError(
            f"--cache-dir {cache} cannot be written to ({error.strerror or error}): give another "
            "folder"
        ) from error
    return Tokens(store.documents, store.crc32, store.path)


def _in_memory(documents: Documents) -> Tokens:
    crc = zlib.crc32(documents.ids.tobytes())
    if documents.counted is not None:
        crc = zlib.crc32(documents.counted.tobytes(), crc)
    return Tokens(documents, crc)


class _Progress:
    """Says now and then how far the tokenizing is, unless it takes no time."""

    def __init__(self, cache: Path, note: Note) -> None:
        self._cache, self._note, self._said = cache, note, 0

    def told(self, done: int, total: int) -> None:
        """So many bytes are done; the first half is the hashing, which is quick."""
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
    """Where tokens are kept between runs: the folder that the system has for such things."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"], "pyggml")
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"], "pyggml", "cache")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pyggml"
    return Path.home() / ".cache" / "pyggml"


def read_eval_texts(config: TrainConfig, tokenizer: Tokenizer, note: Note) -> dict[str, Any]:
    """Tokens of the texts that `eval_text` names; of pairs, the documents."""
    sets: dict[str, Any] = {}
    for text in config.eval_text:
        name = text.partition("=")[0]
        tokens = tokenize(_eval_corpus(text, config), tokenizer, config, note)
        sets[name] = tokens.ids if config.pair_fields is None else tokens.documents
        if tokens.ids.size < 2:
            raise ConfigError(f"--eval-text {text}: must hold at least 2 tokens: give more text")
    return sets


def _eval_corpus(text: str, config: TrainConfig) -> Corpus:
    path = text.partition("=")[2]
    if config.pair_fields is not None:
        return PairCorpus([path], *config.pair_fields)
    return Corpus([path], config.field, config.separator)


def split_text(documents: Documents, config: TrainConfig, seq_len: int) -> tuple[Loader, Any]:
    """The training batches, and what to evaluate on: tokens, packed rows, or None."""
    in_rows = config.packing or config.pair_fields is not None
    return (_packed if in_rows else _windows)(documents, config, seq_len)


def _windows(documents: Documents, config: TrainConfig, seq_len: int) -> tuple[Loader, Any]:
    """Sequences of the stream of all documents."""
    ids = documents.ids
    cut = ids.size - int(ids.size * config.val_fraction)
    train, validation = ids[:cut], ids[cut:]
    if train.size < seq_len + 1:
        raise ConfigError(
            f"--text must hold more than one sequence of --seq-len {seq_len} tokens for training; "
            f"got {train.size} tokens of {ids.size}: give more text or a smaller --seq-len"
        )
    if config.val_fraction and validation.size < 2:
        raise ConfigError(
            f"--val-fraction {config.val_fraction} of {ids.size} tokens leaves "
            f"{validation.size} for validation: give more text, or --val-fraction 0"
        )
    dataset: TokenDataset | RandomWindows
    if config.stride is not None or config.epochs is not None:
        dataset = TokenDataset(train, seq_len, config.stride)
    else:
        dataset = RandomWindows(train, seq_len)
    return _loader(dataset, config, seq_len), validation if config.val_fraction else None


def _packed(documents: Documents, config: TrainConfig, seq_len: int) -> tuple[Loader, Any]:
    """Rows of whole documents."""
    train, held_back = documents, None
    try:
        if config.val_fraction:
            train, held_back = documents.split(config.val_fraction)
        rows = PackedDataset(train, seq_len)
        validation = None
        if held_back is not None:
            packed = PackedDataset(held_back, seq_len)
            size = min(config.batch_size, len(packed))
            validation = Loader(packed, size, shuffle=False, pad_last=True)
    except ValueError as error:
        if config.pair_fields is not None:
            raise ConfigError(
                f"--text, --val-fraction {config.val_fraction}, --seq-len {seq_len}: {error}: give "
                "more pairs, shorter prompts, or a larger --seq-len"
            ) from error
        raise ConfigError(
            f"--packing needs documents, some of them for validation (--val-fraction "
            f"{config.val_fraction}); got {len(documents)}: give more files or records, tell "
            "what stands between documents with --separator, or leave --packing out"
        ) from error
    return _loader(rows, config, seq_len), validation


def _loader(dataset: Any, config: TrainConfig, seq_len: int) -> Loader:
    """Shuffled batches."""
    if len(dataset) < config.batch_size:
        raise ConfigError(
            f"--batch-size must be at most the number of training sequences; got "
            f"--batch-size {config.batch_size} and {len(dataset)} sequences of {seq_len} tokens: "
            f"use --batch-size {len(dataset)}, a smaller --seq-len, or more text"
        )
    return Loader(dataset, config.batch_size, seed=config.seed)
