# SPDX-License-Identifier: MIT
"""Tokenizing in processes of their own: units in, ids out, in the order of the units.

The workers are started as programs, not by `multiprocessing`: that would import the caller's main
module again in each, or fork a process whose threads compute.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ...errors import FormatError
from . import vocabulary as _vocab
from .byte_ranges import Unit, read_unit
from .tokenizer import Tokenizer, _library

__all__ = ["Encoded", "Settings", "encode_all", "encode_unit", "main"]

_START = (
    # Nothing is imported before the parent's path is there: a folder may hold a json.py.
    "import sys; sys.path[:] = eval(sys.stdin.buffer.readline());"
    " from pyggml.data.text.encoding import main; main()"
)


class Settings(NamedTuple):
    """How text becomes ids."""

    separator: str | None
    eos: bool
    dtype: str


class Encoded(NamedTuple):
    """Ids of a unit, and behind which of them a document ends."""

    ids: np.ndarray
    ends: list[int]
    size_bytes: int


def encode_unit(tokenizer: Tokenizer, unit: Unit, settings: Settings) -> Encoded:
    """Read and tokenize a unit."""
    text = read_unit(unit)
    texts = text.split(settings.separator) if settings.separator else [text]
    flags = [[True, True] for _ in texts]
    flags[0][0], flags[-1][1] = unit.opens, unit.closes
    kept = [
        (piece, opens, closes)
        for piece, (opens, closes) in zip(texts, flags, strict=True)
        if not (opens and closes) or piece.strip()
    ]
    head = [tokenizer.bos_id] if settings.eos and tokenizer.add_bos else []
    tail = [tokenizer.eos_id] if settings.eos else []
    parts: list[np.ndarray] = []
    ends: list[int] = []
    number = total = 0
    for ids, (starts, stops) in tokenizer._encode_pieces([piece for piece, _, _ in kept]):
        _, opens, closes = kept[number]
        number += stops
        whole = [*(head if starts and opens else []), *ids, *(tail if stops and closes else [])]
        parts.append(np.array(whole, settings.dtype))
        total += len(whole)
        if stops and closes:
            ends.append(total)
    empty = np.zeros(0, settings.dtype)
    return Encoded(np.concatenate([empty, *parts]), ends, unit.end - unit.start)


def encode_all(
    tokenizer: Tokenizer, units: Iterable[Unit], settings: Settings, workers: int
) -> Generator[Encoded, None, None]:
    """Tokenize units, in their order.

    Args:
        tokenizer: text to ids.
        units: what to read.
        settings: how text becomes ids.
        workers: processes; one is this process.

    Raises:
        FormatError: a file cannot be read as text.
        ValueError: the vocabulary has no tokens for a character.
        RuntimeError: a worker died.
    """
    if workers == 1:
        for unit in units:
            try:
                yield encode_unit(tokenizer, unit, settings)
            except (ValueError, OSError) as error:
                raise _placed(error, unit) from error
        return
    with _Pool(tokenizer, settings, workers) as pool:
        pending: deque[Future[Encoded]] = deque()
        for unit in units:
            pending.append(pool.submit(unit))
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _placed(error: Exception, unit: Unit) -> FormatError:
    """The error with its file: offsets in it are those of a piece."""
    text = str(error)
    if unit.path in text:
        return FormatError(text)
    return FormatError(f"TokenStore: {unit.path}: after byte {unit.start:,}: {text}")


class _Pool:
    """Worker processes, each led by a thread that waits for it."""

    def __init__(self, tokenizer: Tokenizer, settings: Settings, workers: int) -> None:
        setup = {
            "backend": tokenizer._backend.to_str(),
            "ids": [tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos, tokenizer.add_eos],
            "settings": settings,
        }
        path = ascii([entry for entry in sys.path if isinstance(entry, str)])
        self._hello = f"{path}\n{json.dumps(setup)}\n".encode()
        self._own = threading.local()
        self._started: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._threads = ThreadPoolExecutor(workers, "pyggml-tokenize")

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._closed = True
            for process in self._started:
                process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._started:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                # A killed worker leaves unread what stdin still holds: closing it says so, too.
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def submit(self, unit: Unit) -> Future[Encoded]:
        """Let a worker encode a unit."""
        return self._threads.submit(self._encode, unit)

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._own, "process"):
            with self._lock:
                if self._closed:
                    raise RuntimeError("TokenStore: the build was stopped")
                # The workers are what runs in parallel; the library's threads would get in the way.
                self._own.process = subprocess.Popen(
                    [sys.executable, "-c", _START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
                    bufsize=1 << 16,
                )
                self._started.append(self._own.process)
            self._own.greeted = False
        process: subprocess.Popen[bytes] = self._own.process
        return process

    def _encode(self, unit: Unit) -> Encoded:
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        line = body = b""
        reply: dict[str, Any] = {}
        try:
            if not self._own.greeted:
                process.stdin.write(self._hello)
                self._own.greeted = True
            process.stdin.write(json.dumps(unit).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            reply = json.loads(line) if line else {}
            body = process.stdout.read(reply.get("nbytes", 0))
        except (BrokenPipeError, ValueError):
            line = b""
        if "error" in reply:
            raise FormatError(reply["error"])
        if not line or len(body) != reply["nbytes"]:
            raise RuntimeError(
                f"TokenStore: {unit.path}: a worker died (exit status {process.poll()}) after byte"
                f" {unit.start:,}; if memory ran out, use fewer workers"
            )
        ids = np.frombuffer(body, reply["dtype"])
        return Encoded(ids, reply["ends"], unit.end - unit.start)


def main() -> None:
    """Encode units from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    setup = json.loads(sys.stdin.buffer.readline())
    settings = Settings(*setup["settings"])
    backend = _library().Tokenizer.from_str(setup["backend"])
    tokenizer = Tokenizer(backend, vocabulary=_vocab.Vocabulary(backend, *setup["ids"]))
    for line in sys.stdin.buffer:
        unit = Unit(*json.loads(line))
        try:
            ids, ends, _ = encode_unit(tokenizer, unit, settings)
        except (ValueError, OSError) as error:
            text = str(_placed(error, unit))
            results.write(json.dumps({"error": text, "nbytes": 0}).encode() + b"\n")
        else:
            reply = {"nbytes": ids.nbytes, "dtype": ids.dtype.str, "ends": ends}
            results.write(json.dumps(reply).encode() + b"\n")
            results.write(ids.tobytes())
        results.flush()
