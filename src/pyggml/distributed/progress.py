# SPDX-License-Identifier: MIT
"""Operations between ranks that go on while this process computes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ..backend.threads import start_thread

__all__ = ["Progress"]

# MPI moves messages only inside its calls: between two of them the thread gives its core away.
_PAUSE_S = 1e-3
# So many operations are under way; MPI has a buffer for each. The others wait for their turn.
_MOST = 3
# The requests of an operation; what follows a yield is done when they are complete.
Steps = Iterator[list[Any]]


class Progress:
    """Goes on with the operations that were begun, in a thread of its own.

    Operations of several steps take their later steps in the order in which they began, so that all
    ranks call MPI in the same order.

    Args:
        test: takes the requests of a step, and returns whether all are complete.
        threaded: whether MPI lets another thread call it.
    """

    def __init__(self, test: Callable[[list[Any]], bool], threaded: bool):
        self._test, self._threaded = test, threaded
        self._begun: deque[tuple[Steps, list[Any]]] = deque()
        self._waiting: deque[Steps] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(self, steps: Steps) -> None:
        """Begin an operation, when its turn comes.

        Args:
            steps: yields the requests of each step.
        """
        with self._lock:
            self._waiting.append(steps)
            self._start()
            if self._thread is None and self._threaded:
                thread = threading.Thread(target=self._run, name="pyggml-mpi", daemon=True)
                with suppress(RuntimeError):  # `advance` is called in any case
                    start_thread(thread)
                    self._thread = thread
        self._wake.set()

    def _start(self) -> None:
        """Start what is next, as far as there is room."""
        while self._waiting and len(self._begun) < _MOST:
            steps = self._waiting.popleft()
            self._begun.append((steps, next(steps, [])))

    def advance(self, most: int = 0) -> bool:
        """Go on as far as the requests are complete; return True when few operations are left.

        Args:
            most: their number.

        Raises:
            Exception: of an operation.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            while self._begun:
                steps, requests = self._begun[0]
                if not self._test(requests):
                    return len(self._begun) + len(self._waiting) <= most
                following = next(steps, None)
                if following is None:
                    self._begun.popleft()
                    self._start()
                else:
                    self._begun[0] = steps, following
            self._wake.clear()
            return True

    def stop(self) -> None:
        """Leave what was begun, before MPI ends."""
        with self._lock:
            self._begun.clear()
            self._waiting.clear()
            self._threaded = False
            self._wake.clear()

    def _run(self) -> None:
        """Go on, while there is something begun."""
        while self._error is None:
            self._wake.wait()
            try:
                self.advance()
            except Exception as error:  # noqa: BLE001 - the other thread raises it
                self._error = error
            time.sleep(_PAUSE_S)
