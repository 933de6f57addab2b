# SPDX-License-Identifier: MIT
"""Texts of unknown origin on a terminal: nothing in them is a command to it."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

from ..errors import printable

__all__ = ["LogFormatter", "say", "settle", "shown", "written"]

_KEPT = "\n\t"


def shown(text: str) -> str:
    """Return a text as it may be shown: line ends and tabs stay, other controls are escapes.

    Args:
        text: a message, a file's name, a model's text.

    Example:
        >>> shown("one\\n\\x1b[2J")
        'one\\n\\\\x1b[2J'
    """
    return printable(text, _KEPT)


def say(text: object, *, error: bool = False) -> None:
    """Print a line to stdout or stderr.

    Args:
        text: the line.
        error: print it to stderr.
    """
    print(shown(str(text)), file=sys.stderr if error else sys.stdout, flush=True)


def written(text: str) -> str:
    """Return what a model wrote for stdout: as it is for a file or a pipe, else as `shown`.

    Args:
        text: the text.
    """
    return shown(text) if sys.stdout.isatty() else text


def settle() -> None:
    """Drop what stdout and stderr could not write, as Python would try it again at its exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


class LogFormatter(logging.Formatter):
    """The formatter of warnings, which may have names of files in them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return shown(super().format(record))
