# SPDX-License-Identifier: MIT
"""Context managers that a Ctrl-C finds either outside or inside, never between."""

from __future__ import annotations

import copy
import io
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator
from functools import partial
from itertools import chain, compress, repeat
from operator import delitem, iadd, methodcaller
from typing import TYPE_CHECKING, Any, SupportsIndex

__all__ = ["Block", "IfFree", "Leaver", "Scope", "Scopes", "Special", "in_turn"]


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


class Leaver(io.IOBase):
    """An object whose `__exit__`, which is C, makes one call without arguments."""

    closed = True  # or its end would make the call once more

    def __init__(self, close: Callable[[], None]):
        self.close = close  # type: ignore[method-assign]


class Special:
    """`__enter__` or `__exit__` of a scope: Python prepares a function of C, `with` calls that.

    Args:
        prepare: returns that function for a block.
        of_class: what contextlib's ExitStack gets, and calls with the block; None prepares then.
    """

    def __init__(
        self,
        prepare: Callable[[Any], Callable[..., Any]],
        of_class: Callable[..., Any] | None = None,
    ):
        self._prepare = prepare
        self._of_class = of_class or (lambda block, *error: prepare(block)(*error))

    def __get__(self, block: Block | None, kind: type | None = None) -> Callable[..., Any]:
        return self._of_class if block is None else self._prepare(block)


class Block(ContextDecorator):
    """The base of context managers that are entered and left by functions of C.

    Between the bytecodes of an `__enter__` or `__exit__` in Python a Ctrl-C could leave what was
    entered for ever. It cannot divide a function of C.
    """

    def starts(self) -> Callable[[], Any]:
        """Return a function of C that enters, and returns what `as` names."""
        raise NotImplementedError

    def ends(self) -> Callable[[], None]:
        """Return a function of C that leaves, and returns None; `with` may ask before it enters."""
        raise NotImplementedError

    def __copy__(self) -> Block:
        made = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            # A list is of the `with` that has entered the block.
            made.__dict__[name] = [] if type(value) is list else value
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{type(self).__name__}: a context manager belongs to the code that it encloses, and"
            " cannot be copied deeply or pickled; make another one there"
        )

    def _recreate_cm(self) -> Block:
        """Return what a decorated function enters at a call, which may be inside of another."""
        return copy.copy(self)

    if TYPE_CHECKING:

        def __enter__(self) -> Any: ...

        def __exit__(self, *error: object) -> None: ...

    else:
        __enter__ = Special(methodcaller("starts"))
        __exit__ = Special(lambda block: Leaver(block.ends()).__exit__)


class IfFree(Block):
    """A block that has a lock of threads if it is free; `as` names a list, [True] if it is.

    Args:
        lock: a lock of the module `threading`.

    Example:
        >>> lock = threading.Lock()
        >>> with IfFree(lock) as first, IfFree(lock) as second:
        ...     first, second
        ([True], [False])
    """

    def __init__(self, lock: Any):
        self._lock = lock
        self._held: list[bool] = []

    def starts(self) -> Callable[[], Any]:
        """Return what enters: it takes the lock if it can, and returns the list."""
        return partial(iadd, self._held, map(self._lock.acquire, (False,)))

    def ends(self) -> Callable[[], None]:
        """Return what leaves: it releases the lock if the block has it."""
        return in_turn(chain(compress(repeat(self._lock.release), self._held), [self._held.clear]))


class Scope(Block):
    """A context manager that sets a value for the code that its thread runs inside `with`.

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
