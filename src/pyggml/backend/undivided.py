# SPDX-License-Identifier: MIT
"""Blocks that no handler of a signal divides, and blocks whose end none divides."""

from __future__ import annotations

import os
import sys
import threading

# Of C; that of the module `signal` is Python around it.
from _signal import getsignal, valid_signals  # type: ignore[import-not-found]
from collections.abc import Callable
from functools import partial
from itertools import chain, compress, repeat
from operator import attrgetter, eq, methodcaller
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .library import lib
from .scopes import Block, Leaver, Special, in_turn

__all__ = ["Undivided", "Undone", "settle"]

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


class _Undoer(Leaver):
    """An object whose `__exit__`, which is C, makes calls; its end makes those that are left.

    `with` holds it from before the block is entered. No frame of Python holds it, so that no
    traceback keeps it from its end.

    Args:
        close: makes the calls, or those that are left after one that failed.
        state: says when they are done.
        ends: how many of them may fail.
    """

    closed = property(attrgetter("_state.is_done"))

    def __init__(self, close: Callable[[], None], state: SimpleNamespace, ends: int = 4):
        super().__init__(close)
        self._state = state
        self._next = _Undoer(close, state, ends - 1) if ends > 1 else None  # ends after this one


class Undone(Block):
    """The base of blocks that change what must be put back, whatever ends them.

    What was changed is put back before an exception goes on; handlers of signals wait meanwhile, as
    in `Undivided`. An `ExitStack` is written in Python: where a handler raises in its lines, what
    was changed is put back when nothing holds the block any more.

    Args:
        locks: of threads; the block holds the first one that is free, and waits for the last one.
    """

    def __init__(self, *locks: Any):
        self._locks = locks
        self._releases: list[Callable[[], Any]] = []
        self._handled: BaseException | None = None  # what is handled around the block
        self._kept: list[_Undoer] = []  # of an ExitStack

    def enter(self) -> Any:
        """Change what is to be changed, and return what `as` names."""
        raise NotImplementedError

    def undo(self) -> None:
        """Put back what was changed, if it was; it is called again, as it may have failed."""

    def left(self) -> None:
        """Do what follows when all is put back, such as raise."""

    def starts(self) -> Callable[[], Any]:
        """Return what enters."""
        return self._begin

    @property
    def is_entered(self) -> bool:
        """True inside the block."""
        return bool(self._releases)

    @property
    def has_failed(self) -> bool:
        """True at the end of a block that an exception ends; or that begins outside an `except`
        and ends inside, as a generator's may.
        """
        return sys.exc_info()[1] is not self._handled

    def __copy__(self) -> Block:
        self._need_outside()
        return super().__copy__()

    def _need_outside(self) -> None:
        if self.is_entered:
            raise RuntimeError(f"{type(self).__name__}: cannot be entered inside of itself")

    def _begin(self) -> Any:
        self._need_outside()
        self._handled = sys.exc_info()[1]
        try:
            for lock in self._locks:
                if not self._releases:  # one call of C takes the lock, and notes it
                    taken = map(lock.acquire, (lock is self._locks[-1],))
                    self._releases += compress((lock.release,), taken)
            return self.enter()
        except BaseException:
            self._undoer().close()
            raise

    def _undoer(self) -> _Undoer:
        """Return an object that ends this block, once."""
        # Of a block that another `with` has entered, the end of the object alone changes nothing.
        state = SimpleNamespace(is_done=self.is_entered)
        main = threading.main_thread().ident
        # Python's thread of handlers, asked for at the end, which another one may come to.
        is_main = map(eq, map(methodcaller("__call__"), repeat(threading.get_ident)), repeat(main))
        calls = chain(
            [partial(setattr, state, "is_done", False)],
            compress([partial(lib.pyggml_enter_block, _handled())], is_main),
            [settle, self.undo, self.undo, self.undo],
            self._releases,
            [self._releases.clear, self.left, partial(setattr, state, "is_done", True)],
            compress([lib.pyggml_leave_block], is_main),
        )
        return _Undoer(in_turn(calls), state)

    def _enter_of_class(self) -> Any:
        """Enter for an ExitStack."""
        self._kept.append(self._undoer())  # its end comes with that of the block, if not before
        return self._begin()

    def _exit_of_class(self, *error: Any) -> None:
        """Leave for an ExitStack."""
        (self._kept or [self._undoer()]).pop().__exit__(*error)

    if not TYPE_CHECKING:
        __enter__ = Special(methodcaller("starts"), _enter_of_class)
        __exit__ = Special(lambda block: block._undoer().__exit__, _exit_of_class)
