# SPDX-License-Identifier: MIT
"""Context managers that a Ctrl-C finds either outside or inside, and blocks that it waits for."""

from __future__ import annotations

import copy
import io
import threading

# Of C; those of the module `signal` are Python around them.
from _signal import getsignal, raise_signal, valid_signals  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator
from functools import partial
from itertools import chain, compress
from operator import delitem, is_, methodcaller
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

__all__ = ["Scope", "Scopes", "Undivided", "in_turn"]


class Scopes(threading.local):
    """The scopes that a thread is inside of, each with its value; the innermost is the last."""

    def __init__(self) -> None:
        self.entries: dict[Scope, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.entries.values()))

    def innermost(self, default: Any = None) -> Any:
        """Return the value of the innermost scope."""
        if not self.entries:
            return default
        return next(reversed(self.entries.values()), default)


def in_turn(calls: Iterable[Callable[[], Any]]) -> Callable[[], None]:
    """Return a function that makes calls once, in order, as they are then; of C if they are."""
    last: deque[Any] = deque(maxlen=0)
    return partial(last.extend, map(methodcaller("__call__"), calls))


class _Leaver(io.IOBase):
    """An object whose `__exit__`, which is C, makes one call without arguments."""

    closed = True  # or its end would make the call once more

    def __init__(self, close: Callable[[], None]):
        self.close = close  # type: ignore[method-assign]


class _Special:
    """`__enter__` or `__exit__` of a scope: Python prepares a function of C, `with` calls that."""

    def __init__(self, prepare: Callable[[Scope], Callable[..., Any]]):
        self._prepare = prepare

    def __get__(self, scope: Scope | None, kind: type | None = None) -> Callable[..., Any]:
        if scope is None:  # as contextlib.ExitStack asks
            return lambda scope, *error: self._prepare(scope)(*error)
        return self._prepare(scope)


class Scope(ContextDecorator):
    """A context manager that sets a value for the code that its thread runs inside `with`.

    Between the bytecodes of an `__enter__` or `__exit__` in Python a Ctrl-C could leave the value
    set for ever. Here both are functions of C, which a Ctrl-C cannot divide.

    Args:
        scopes: where the value is found.
        value: what is found there; `as` names it. None is the scope itself.

    Raises:
        RuntimeError: it is entered inside of itself.

    Example:
        >>> levels = Scopes()
        >>> with Scope(levels, 1), Scope(levels, 2):
        ...     levels.innermost()
        2
        >>> levels.innermost(default=0)
        0
    """

    def __init__(self, scopes: Scopes, value: Any = None):
        self.scopes = scopes
        self.value: Any = self if value is None else value

    def starts(self) -> Callable[[], Any]:
        """Return a function of C that enters, and returns what `as` names."""
        entries = self.scopes.entries
        if self in entries:
            raise RuntimeError(f"{type(self).__name__}: cannot be entered inside of itself")
        return partial(entries.setdefault, self, self.value)

    def ends(self) -> Callable[[], None]:
        """Return a function of C that leaves, and returns None."""
        return partial(delitem, self.scopes.entries, self)

    def __copy__(self) -> Scope:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{type(self).__name__}: a context manager belongs to the code that it encloses, and"
            " cannot be copied deeply or pickled; make another one there"
        )

    def _recreate_cm(self) -> Scope:
        """Return what a decorated function enters at a call, which may be inside of another."""
        return copy.copy(self)

    if TYPE_CHECKING:

        def __enter__(self) -> Any: ...

        def __exit__(self, *error: object) -> None: ...

    else:
        __enter__ = _Special(methodcaller("starts"))
        __exit__ = _Special(lambda scope: _Leaver(scope.ends()).__exit__)


# Signals that wait; one more runs the handlers at once, so that a block that hangs can be ended.
_MOST = 2
_SIGNALS = tuple(map(int, valid_signals()))
_blocks = Scopes()


class Undivided(Scope):
    """A block during which handlers of signals wait: they run after its end.

    Python runs a handler between any two bytecodes, and a handler may raise, as that of Ctrl-C
    does. What such a block changes is changed as a whole. Blocks may be inside of others: handlers
    run after the outermost one. The third signal runs them at once. Python runs handlers in the
    main thread alone; in another one the block does nothing.

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
        super().__init__(_blocks)
        self._later = later
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._puts_back: list[Callable[[], Any]] = []
        self._waiting: deque[tuple[int, FrameType | None]] = deque()

    def starts(self) -> Callable[[], Any]:
        """Return what enters: it lets handlers wait, and returns the block."""
        enters = super().starts()
        outermost = self._outermost()
        if self._later or outermost._handlers or not _runs_handlers():
            return enters
        # Each may run a handler that waits already, and so raise: then no block is entered.
        holds = outermost._holds()
        results = map(methodcaller("__call__"), [*holds, enters])
        # The last call returns the block, the others what handled a signal before.
        return partial(next, filter(partial(is_, self), results))

    def ends(self) -> Callable[[], None]:
        """Return what leaves: it puts the handlers back, and runs those that waited."""
        if self._outermost() is not self:
            return super().ends()
        # First the end of the block: from there on a handler that still notes runs what waits.
        # `with` asks for this before the block begins, which adds what it puts back.
        return in_turn(chain([super().ends()], self._puts_back, [self._run]))

    def _outermost(self) -> Undivided:
        """Return the outermost block that the thread is inside of, else this one."""
        return cast(Undivided, next(iter(self.scopes.entries), self))

    def _holds(self) -> list[Callable[[], Any]]:
        """Return functions of C that replace the handlers."""
        found = list(map(getsignal, _SIGNALS))
        # Others are the system's own, or were not set from Python.
        pythons = compress(zip(_SIGNALS, found, strict=True), map(callable, found))
        self._handlers = {signum: self._own(signum, each) for signum, each in pythons}
        self._puts_back += [partial(set_handler, *each) for each in self._handlers.items()]
        return [partial(set_handler, signum, self._note) for signum in self._handlers]

    def _own(self, signum: int, handler: Any) -> Any:
        """Return a signal's own handler, also where one that raised kept it from coming back."""
        while isinstance(block := getattr(handler, "__self__", None), Undivided):
            handler = block._handlers[signum]
        return handler

    def _note(self, signum: int, frame: FrameType | None) -> None:
        """Note a signal, and let its handler wait."""
        self._waiting.append((signum, frame))
        if self not in self.scopes.entries or len(self._waiting) > _MOST:
            self._run()

    def _run(self) -> None:
        """Run the handlers that waited."""
        try:
            while self._waiting:
                signum, frame = self._waiting.popleft()
                self._handlers[signum](signum, frame)
        finally:
            while self._waiting:  # one has raised: the others come by themselves
                raise_signal(self._waiting.popleft()[0])


def _runs_handlers() -> bool:
    """Return whether handlers run in this thread."""
    return threading.current_thread() is threading.main_thread()
