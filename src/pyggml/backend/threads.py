# SPDX-License-Identifier: MIT
"""Threads of the package: where none can start, work goes on without."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["map_in_threads", "need_interpreter", "start_thread"]

T = TypeVar("T")
R = TypeVar("R")


def need_interpreter(who: str) -> None:
    """Raise for work that needs threads, imports, signals and all of NumPy.

    Raises:
        RuntimeError: the interpreter exits.
    """
    if sys.is_finalizing():
        raise RuntimeError(
            f"{who}: must run before the interpreter exits; a `__del__` or the like called it after"
            " that: call it in the program, or in a function of atexit"
        )


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Args:
        thread: not started yet.

    Raises:
        RuntimeError: the interpreter exits, or the system has no thread left.
    """
    if sys.is_finalizing():  # it would never run, and `start` would wait for it for ever
        raise RuntimeError("can't start new thread: the interpreter exits")
    thread.start()


def map_in_threads(function: Callable[[T], R], items: Iterable[T], most: int) -> list[R]:
    """Return what a function gives for each item, computed by this thread and others.

    Args:
        function: called once for each item, in any order; what it raises ends all.
        items: its arguments.
        most: threads; there are fewer where no more can start.

    Example:
        >>> map_in_threads(abs, [-1, 2, -3], 2)
        [1, 2, 3]
    """
    given = list(items)
    found: dict[int, R] = {}
    errors: list[BaseException] = []
    left = iter(range(len(given)))  # each number goes to one thread

    def work() -> None:
        for number in left:
            if errors:
                return
            try:
                found[number] = function(given[number])
            except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
                errors.append(error)

    threads = []
    for _ in range(min(most, len(given)) - 1):
        thread = threading.Thread(target=work, name="pyggml-work", daemon=True)
        try:
            start_thread(thread)
        except RuntimeError:
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(given))]
