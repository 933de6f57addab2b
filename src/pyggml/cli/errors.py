# SPDX-License-Identifier: MIT
"""Failures as one message on stderr and an exit code."""

from __future__ import annotations

import codecs
import io
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TextIO, cast

import typer

from ..debug.lasting import LastingStream
from .cures import NOT_OF_A_FILE, cure_of
from .terminal import LogFormatter, say

__all__ = ["EXIT_FAILED", "EXIT_PIPE", "EXIT_USAGE", "explain", "friendly_errors", "naming"]

EXIT_FAILED = 1
EXIT_USAGE = 2
# What a shell reports of a program that a closed pipe ended (128 + SIGPIPE).
EXIT_PIPE = 141
_PLAIN_SIGNS = {"×": "x", "…": "...", "–": "-", "—": "-", "’": "'", "“": '"', "”": '"'}
_EXTRAS = ("matplotlib", "rich", "safetensors", "tokenizers", "typer")


def _debug() -> bool:
    return os.environ.get("PYGGML_DEBUG", "") not in ("", "0")


@contextmanager
def friendly_errors(*, trains: bool = False) -> Iterator[None]:
    """Turn exceptions into a message and an exit code; PYGGML_DEBUG=1 shows the traceback too.

    Args:
        trains: a training goes on where stdout or stderr can no longer be written: the terminal
            or the pager is gone, or the disk is full. Lines are lost then, and nothing else.

    Raises:
        typer.Exit: 2 for options that cannot be used, 130 after Ctrl-C, 143 after SIGTERM and 129
            after SIGHUP, 141 for a closed pipe, 1 for other failures.
    """
    _mend_streams()
    with _lasting_streams() if trains else nullcontext():
        yield from _explained(trains)


def _explained(trains: bool) -> Iterator[None]:
    """Run what `friendly_errors` encloses."""
    if not logging.getLogger().handlers:
        level = logging.INFO if _debug() else logging.WARNING
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LogFormatter("%(levelname)s: %(message)s"))
        logging.basicConfig(level=level, handlers=[handler])
        # Each warning is one line, as ours are, and cannot send commands to the terminal.
        warnings.showwarning = lambda said, *_: logging.getLogger("py.warnings").warning("%s", said)
        warnings.filterwarnings("ignore", module=r"PIL\.")  # they do not name the damaged file
    try:
        yield
        sys.stdout.flush()
    except typer.Exit:
        raise
    except BrokenPipeError:
        raise typer.Exit(EXIT_PIPE) from None
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the last line of defence)
        if _debug():
            say(traceback.format_exc(), error=True)
        message, code = explain(error, trains)
        from ..distributed import world

        if world().leave(message, code):
            with suppress(OSError):  # nobody reads it
                say(message, error=True)
        raise typer.Exit(code) from None


@contextmanager
def _lasting_streams() -> Iterator[None]:
    """Let stdout and stderr lose what cannot be written, and say so in the end."""
    before = sys.stdout, sys.stderr
    out, error = LastingStream(sys.stdout), LastingStream(sys.stderr)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, error)
    try:
        yield
    finally:
        out.flush()
        if out.lost is not None:
            say(f"note: lines of stdout were lost: {out.lost}", error=True)
        sys.stdout, sys.stderr = before


@contextmanager
def naming(flag: str, path: str) -> Iterator[None]:
    """Name a flag in the errors of the system about its file.

    Args:
        flag: the flag.
        path: its value.

    Raises:
        ConfigError: the file cannot be written.
    """
    from ..errors import ConfigError

    try:
        yield
    except OSError as error:
        if error.errno in NOT_OF_A_FILE:
            raise
        raise ConfigError(f"{flag} {path}: {error.strerror or error}{cure_of(error)}") from error


def _mend_streams() -> None:
    """Open streams that were closed from the start, and make the others take any character."""
    # Or a file that is opened takes the place of stdin, stdout or stderr, and gets what others
    # write there.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    codecs.register_error("pyggml-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows a similar sign or a question mark rather than an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pyggml-plain")


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return a replacement for the characters that a stream cannot encode, and their end."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_PLAIN_SIGNS.get(char, "?") for char in text), error.end


def explain(error: BaseException, trains: bool = False) -> tuple[str, int]:
    """Return the message and the exit code for an exception.

    Args:
        error: the exception.
        trains: of a training, which can do with less memory.

    Example:
        >>> explain(FileNotFoundError(2, "No such file or directory", "a.txt"))
        ('error: a.txt: No such file or directory', 1)
    """
    if type(error) is KeyboardInterrupt:  # which may have come while the next line was at work
        return "interrupted", 128 + signal.SIGINT
    from ..errors import ConfigError, FormatError
    from ..train import TrainingInterrupted
    from .options import blames_option, named_by_flags

    if isinstance(error, TrainingInterrupted):
        cure = "continue with --resume" if error.checkpoint else "nothing was saved"
        return f"interrupted: {error}; {cure}", 128 + error.signum
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + getattr(error, "signum", signal.SIGINT)
    wrong = isinstance(error, (ValueError, TypeError)) and not isinstance(error, FormatError)
    if isinstance(error, ConfigError) or (wrong and blames_option(str(error))):
        return f"error: {named_by_flags(str(error))}", EXIT_USAGE
    return f"error: {named_by_flags(_message(error, trains))}", EXIT_FAILED


def _message(error: BaseException, trains: bool) -> str:
    """Return the text of an exception, with the cure where it has none itself."""
    from ..errors import OutOfMemoryError

    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return f'{error.name} is not installed: pip install "pyggml[cli]"'
    if isinstance(error, ImportError):
        return f"{error or type(error).__name__}{cure_of(error)}"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}{cure_of(error)}"
    if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
        if trains:
            return "out of memory: use smaller batches, shorter sequences or a smaller model"
        return (
            "out of memory: raise the limit of the process (ulimit -v), close other programs, or"
            " take a smaller file, model or batch"
        )
    if isinstance(error, KeyError):
        return str(error.args[0]) if error.args else "unknown key"
    said = (ValueError, TypeError, RuntimeError, ArithmeticError, OSError)
    if isinstance(error, said):
        return f"{error or type(error).__name__}{cure_of(error)}"
    return f"{type(error).__name__}: {error} (PYGGML_DEBUG=1 shows where)"
