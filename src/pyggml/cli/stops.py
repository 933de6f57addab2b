# SPDX-License-Identifier: MIT
"""SIGTERM and SIGHUP as Ctrl-C: a command ends with a line, and leaves no half of a file."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "stoppable"]

_NAMES = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP


class Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C ends a command.

    Args:
        signum: number of the signal.
    """

    def __init__(self, signum: int):
        self.signum = int(signum)
        super().__init__(f"stopped by {signal.Signals(signum).name}")


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Stopped` where they would end the process on the spot.

    A second one does that, and the first one in a process that was forked meanwhile.

    Example:
        >>> with stoppable():
        ...     try:
        ...         signal.raise_signal(signal.SIGTERM)
        ...     except Stopped as error:
        ...         print(error)
        stopped by SIGTERM
    """
    process = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)
        if os.getpid() != process:
            os.kill(os.getpid(), signum)
        raise Stopped(signum)

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    # Others have a handler from elsewhere, or are ignored, as SIGHUP is by nohup.
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
