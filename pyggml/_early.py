# SPDX-License-Identifier: MIT
"""Ctrl-C while the program `pyggml` is still being imported: one line, and no traceback.

Only there: whoever imports the package into a program of their own keeps their signal handlers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["hand_over"]

_PROGRAMS = ("pyggml", "pyggml.cli")


def _is_program() -> bool:
    """Whether this process is `pyggml`, `python -m pyggml` or `python -m pyggml.cli`."""
    first = sys.argv[0] if sys.argv else ""
    if first == "-m":  # what Python has there until it has found the module
        after = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
        return bool(after) and after[0] in _PROGRAMS
    return os.path.splitext(os.path.basename(first))[0] == "pyggml"


def _leave(signum: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun, and an exception may be lost within an import."""
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(128 + signum)


def hand_over() -> None:
    """Give Ctrl-C back to Python; what follows has its own way to end."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    _is_program()
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)
