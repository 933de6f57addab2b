# SPDX-License-Identifier: MIT
"""The package `tokenizers`, whose memory and threads run out in ways of their own.

Its Rust ends the process when it has no memory, and panics when it has no thread. Both are asked
for before it is called. The C library reserves tens of megabytes for each thread that allocates,
so that it works in the calling thread where memory is limited.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from ...backend.sizes import format_bytes
from ...errors import FormatError, OutOfMemoryError

__all__ = [
    "DECODED",
    "ENCODED",
    "READ",
    "TRAINED",
    "guarded",
    "library",
    "reserve",
    "start_threads",
]

_log = logging.getLogger("pyggml.data")

ENCODED, DECODED, TRAINED, READ = 250, 100, 125, 40
"""Bytes that the library takes for a character, a token, a character it learns from, and a byte of
a tokenizer file: measured with a token for each character."""
# For what each call takes whatever the length of its text.
_LEAST = 1 << 20
_PARALLELISM = "TOKENIZERS_PARALLELISM"


def library() -> Any:
    """Return the package `tokenizers`."""
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        cure = 'pip install "pyggml[cli]"'
        raise ImportError(f"Tokenizer: needs the package tokenizers; {cure}") from error
    return tokenizers


@contextmanager
def guarded(who: str, needs: int = 0) -> Iterator[None]:
    """Let the library work only where there is memory; raise a FormatError where it gives up.

    It raises a bare `Exception`, such as for a letter without a token, and panics, which is no
    `Exception`, such as on a pattern that takes too many steps on a text.

    Args:
        who: the caller, for messages.
        needs: bytes that the library will take.
    """
    reserve(who, needs)
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and not _is_panic(error):
            raise
        raise FormatError(
            f"{who}: the tokenizers library gave up: {error}; use another tokenizer"
        ) from None


def reserve(who: str, needs: int) -> None:
    """Raise `OutOfMemoryError` where the system has not so many bytes; none is written to."""
    _need_one_thread()
    try:
        np.empty(_LEAST + needs, np.uint8)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{who}: the tokenizers library takes up to {format_bytes(_LEAST + needs)}, which"
            " cannot be allocated: give shorter texts, or raise the limit of memory (ulimit -v)"
        ) from error


@functools.cache
def start_threads() -> None:
    """Let the library start its threads; where the system has none, it works without."""
    _need_one_thread()
    if _PARALLELISM in os.environ:
        return
    tokenizers = library()
    try:
        tokenizers.Tokenizer(tokenizers.models.BPE()).encode_batch(["a", "b"])
    except BaseException as error:
        if not _is_panic(error):
            raise
        os.environ[_PARALLELISM] = "false"
        _log.warning("tokenizers starts no threads, and works in one: %s", error)


def _need_one_thread() -> None:
    """Let the library work in one thread where the process has a limit of memory."""
    if resource is None or _PARALLELISM in os.environ:
        return
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    if any(limit != resource.RLIM_INFINITY for limit in limits):
        os.environ[_PARALLELISM] = "false"
        _log.info("tokenizers works in one thread, as memory is limited (ulimit -v)")


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"
