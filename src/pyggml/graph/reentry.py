# SPDX-License-Identifier: MIT
"""Raising on a computation inside of another one of the same thread."""

from __future__ import annotations

import sys
from types import FrameType

from ..errors import BackendError

__all__ = ["NoReentry"]


class NoReentry:
    """Code that must not be entered while it runs, by an observer, a finaliser or a signal handler.

    The lock of computing keeps other threads out, and lets its own thread in again.

    Args:
        who: what runs, for messages.

    Example:
        >>> guard = NoReentry("compile")
        >>> def run():
        ...     guard.enter()
        ...     try:
        ...         return 1
        ...     finally:
        ...         guard.leave()
        >>> run()
        1
    """

    __slots__ = ("_frame", "_who")

    def __init__(self, who: str):
        self._who = who
        self._frame: FrameType | None = None

    def enter(self) -> None:
        """Begin in the caller's frame; `leave` ends it, where no Ctrl-C comes before.

        Raises:
            BackendError: the code runs already.
        """
        caller = sys._getframe(1)
        if self._frame is not None and self._is_below(caller):
            raise BackendError(
                f"{self._who}: must not run inside of its own run; got a call by an observer, a"
                " signal handler or a `__del__` meanwhile; compute before or after"
            )
        self._frame = caller

    def _is_below(self, frame: FrameType | None) -> bool:
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None

    def leave(self) -> None:
        """End."""
        self._frame = None
