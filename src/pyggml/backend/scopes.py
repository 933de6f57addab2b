# SPDX-License-Identifier: MIT
"""Context managers that a Ctrl-C finds either outside or inside, never between."""

from __future__ import annotations

import copy
import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator
from functools import partial
from operator import delitem, methodcaller
from typing import TYPE_CHECKING, Any, SupportsIndex

__all__ = ["Scope", "Scopes", "in_turn"]


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


def in_turn(*calls: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that makes several calls once, in order; of C if all of them are."""
    return partial(deque[Any](maxlen=0).extend, map(methodcaller("__call__"), calls))


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
