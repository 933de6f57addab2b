# SPDX-License-Identifier: MIT
"""Blocks that no handler of a signal divides."""

from __future__ import annotations

import os
import threading

# Of C; that of the module `signal` is Python around it.
from _signal import getsignal, valid_signals  # type: ignore[import-not-found]
from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any

from .library import lib
from .scopes import Block, in_turn

__all__ = ["Undivided", "settle"]

_SIGNALS = tuple(signum for signum in map(int, valid_signals()) if signum <= 64)
_BITS = tuple(1 << (signum - 1) for signum in _SIGNALS)


class Undivided(Block):
    """A block during which handlers of signals wait: they run after its end.

    Python runs a handler between any two bytecodes, and a handler may raise, as that of Ctrl-C
    does. What such a block changes is changed as a whole. Blocks may be inside of others: handlers
    run after the outermost one. A third SIGINT or SIGTERM does not wait. Python runs handlers in
    the main thread alone; in another one the block does nothing, and neither on Windows.

    A handler whose signal came just before the block runs in it, at the first call of a function of
    Python: a block that changes anything before calls `settle` first.

    Args:
        later: handlers wait from the first block inside this one on, to the end of this one.

    Example:
        >>> import signal
        >>> done = []
        >>> before = signal.signal(signal.SIGTERM, lambda signum, frame: done.append("handler"))
        >>> with Undivided():
        ...     signal.raise_signal(signal.SIGTERM)
        ...     done.append("block")
        >>> done, signal.signal(signal.SIGTERM, before) and None
        (['block', 'handler'], None)
    """

    def __init__(self, later: bool = False):
        self._later = later
        self._leaves: list[Callable[[], None]] = []

    def starts(self) -> Callable[[], Any]:
        """Return what enters the block."""
        is_main = threading.current_thread() is threading.main_thread()
        self._leaves[:] = [lib.pyggml_leave_block] if is_main else []
        if not is_main:
            return bool  # does nothing
        return partial(lib.pyggml_enter_block, 0 if self._later else _handled())

    def ends(self) -> Callable[[], None]:
        """Return what leaves the block, if it was entered."""
        return in_turn(self._leaves)


def settle() -> None:
    """Run the handlers of signals that came before a block, as each call of a function does."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lib.pyggml_end_blocks)


def _handled() -> int:
    """Return the signals that Python handles, as the bits of a number."""
    return sum(compress(_BITS, map(callable, map(getsignal, _SIGNALS))))
