# SPDX-License-Identifier: MIT
"""Ctrl-C that finishes the running step."""

from __future__ import annotations

import os
import signal
import threading

# Of C; those of the module `signal` are Python around them.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from functools import partial
from operator import is_, methodcaller
from pathlib import Path
from types import FrameType
from typing import Any

from ..backend.scopes import Scope, Scopes, in_turn
from ..checks import function
from ..errors import Copyable

__all__ = ["InterruptGuard", "StoppedAtOnce", "TrainingInterrupted"]


class TrainingInterrupted(Copyable, KeyboardInterrupt):
    """A signal ended a run after a whole step, with its checkpoint written.

    Args:
        step: optimizer steps done.
        checkpoint: directory of the checkpoint, or None when the run keeps none.
        signum: number of the signal.
    """

    def __init__(self, step: int, checkpoint: Path | None, signum: int = signal.SIGINT):
        self.step = step
        self.checkpoint = checkpoint
        self.signum = int(signum)
        where = f"; checkpoint {checkpoint}" if checkpoint else "; no checkpoint is kept"
        super().__init__(f"training stopped after step {step}{where}")


class StoppedAtOnce(Copyable, KeyboardInterrupt):
    """A second signal ended a run in the middle of a step.

    Args:
        signum: number of the signal.
    """

    def __init__(self, signum: int):
        self.signum = int(signum)
        super().__init__(f"stopped by {signal.Signals(signum).name}")


_guards = Scopes()
# Windows has none.
_HANGUPS = (int(signal.SIGHUP),) if hasattr(signal, "SIGHUP") else ()


class InterruptGuard(Scope):
    """While active, the first SIGINT, SIGTERM or SIGHUP is noted; a second SIGINT or SIGTERM acts
    at once.

    A terminal that closes may send SIGHUP twice, so that a second one changes nothing; where it is
    ignored from the start, as by `nohup`, it stays ignored. Signals reach Python's main thread
    only; in another thread the guard does nothing.

    Args:
        on_request: called once with the signal's number when the first one arrives.

    Raises:
        TypeError: on_request is no function.
        StoppedAtOnce: a second signal came; a KeyboardInterrupt.

    Example:
        >>> with InterruptGuard() as guard:
        ...     for step in range(3):
        ...         if guard.requested:
        ...             break
    """

    def __init__(self, on_request: Callable[[int], None] | None = None):
        super().__init__(_guards)
        self.requested = False
        self.signum = int(signal.SIGINT)
        if on_request is not None:
            function("InterruptGuard", "on_request", on_request, "signal's number -> None")
        self._on_request = on_request
        self._previous: dict[int, Any] = {}

    def starts(self) -> Callable[[], Any]:
        """Return what enters: it sets the handlers and returns the guard."""
        self._remember()
        handlers = [partial(set_handler, signum, self._handle) for signum in self._previous]
        results = map(methodcaller("__call__"), [*handlers, super().starts()])
        # The last call returns the guard, the others what handled a signal before.
        return partial(next, filter(partial(is_, self), results))

    def ends(self) -> Callable[[], None]:
        """Return what leaves: it puts the handlers back."""
        self._remember()
        handlers = [partial(set_handler, *each) for each in self._previous.items()]
        return in_turn([*handlers, super().ends()])

    def _remember(self) -> None:
        """Look up who handles the signals outside of the block."""
        if self in self.scopes.entries or threading.current_thread() is not threading.main_thread():
            return
        for signum in (int(signal.SIGINT), int(signal.SIGTERM), *_HANGUPS):
            handler = getsignal(signum)
            if signum in _HANGUPS and handler == signal.SIG_IGN:
                continue
            # None: the handler was not set from Python and cannot be put back from here.
            self._previous[signum] = signal.SIG_DFL if handler is None else handler

    @staticmethod
    def forked() -> None:
        """Let a forked process handle signals as outside of the block: it does not train."""
        for signum in (int(signal.SIGINT), int(signal.SIGTERM), *_HANGUPS):
            while isinstance(guard := getattr(getsignal(signum), "__self__", None), InterruptGuard):
                set_handler(signum, guard._previous[signum])

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            if signum in _HANGUPS:
                return
            raise StoppedAtOnce(signum)
        self.requested = True
        self.signum = signum
        if self._on_request is not None:
            self._on_request(signum)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=InterruptGuard.forked)
