# SPDX-License-Identifier: MIT
"""Objects that are known as long as somebody else holds them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["WeakGroup"]

_T = TypeVar("_T")


class WeakGroup(Generic[_T]):
    """A set that keeps none of its members alive.

    Unlike those of `weakref.WeakSet`, a member's end runs no Python code: a signal would find it
    there, and its exception, say of Ctrl-C, would be printed and lost. Members are compared by
    identity, and their class must not say otherwise.

    Example:
        >>> group = WeakGroup()
        >>> group.add(tensor([1.0]))  # gone at once
        >>> group.members()
        []
    """

    def __init__(self) -> None:
        self._refs: set[weakref.ref[_T]] = set()

    def add(self, member: _T) -> None:
        """Take a member in."""
        # The set's own method, which is C, is what is called when the member ends.
        self._refs.add(weakref.ref(member, self._refs.discard))

    def update(self, members: Iterable[_T]) -> None:
        """Take several in."""
        for member in members:
            self.add(member)

    def discard(self, member: _T) -> None:
        """Leave one out; it need not be one."""
        self._refs.discard(weakref.ref(member))

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, member: _T) -> bool:
        return weakref.ref(member) in self._refs

    def members(self) -> list[_T]:
        """Those that live."""
        while True:
            try:
                refs = list(self._refs)
            except RuntimeError:  # changed by another thread; a lock would not survive a fork
                continue
            return [member for member in (ref() for ref in refs) if member is not None]
