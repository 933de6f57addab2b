# SPDX-License-Identifier: MIT
"""Ctrl-C that finishes the running step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..checks import function

__all__ = ["InterruptGuard", "StoppedAtOnce", "TrainingInterrupted"]


class TrainingInterrupted(KeyboardInterrupt):
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


class StoppedAtOnce(KeyboardInterrupt):
    """A second signal ended a run in the middle of a step.

    Args:
        signum: number of the signal.
    """

    def __init__(self, signum: int):
        self.signum = int(signum)
        super().__init__(f"stopped by {signal.Signals(signum).name}")


class InterruptGuard:
    """While active, the first SIGINT or SIGTERM is noted; a second one of either acts at once.

    Signals reach Python's main thread only; in another thread the guard does nothing.

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
        self.requested = False
        self.signum = int(signal.SIGINT)
        if on_request is not None:
            function("InterruptGuard", "on_request", on_request, "signal's number -> None")
        self._on_request = on_request
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._previous[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, handler in self._previous.items():
            # None: the handler was not set from Python and cannot be put back from here.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise StoppedAtOnce(signum)
        self.requested = True
        self.signum = signum
        if self._on_request is not None:
            self._on_request(signum)
