# SPDX-License-Identifier: MIT
"""A set of objects that does not keep them alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Generic, TypeVar

__all__ = ["WeakGroup"]

_T = TypeVar("_T")


class WeakGroup(Generic[_T]):
    """A set that keeps none of its members alive.

    Unlike those of `weakref.WeakSet`, a member's end runs no Python code: a signal would find it
    there, and its exception, say of Ctrl-C, would be printed and lost. Members are told apart by
    identity, never compared.

    Example:
        >>> group = WeakGroup()
        >>> group.add(tensor([1.0]))  # gone at once
        >>> group.members()
        []
    """

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[_T]] = {}

    def add(self, member: _T) -> None:
        """Add a member."""
        # `dict.pop`, which is C, is what is called when the member ends; the reference that it is
        # given besides the key is its default.
        key = id(member)
        self._refs[key] = weakref.ref(member, partial(self._refs.pop, key))

    def update(self, members: Iterable[_T]) -> None:
        """Add several members."""
        for member in members:
            self.add(member)

    def discard(self, member: _T) -> None:
        """Remove an object if it is a member."""
        self._refs.pop(id(member), None)

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, member: _T) -> bool:
        return id(member) in self._refs

    def members(self) -> list[_T]:
        """Return the members that still exist."""
        while True:
            try:
                refs = list(self._refs.values())
            except RuntimeError:  # changed by another thread; a lock would not survive a fork
                continue
            return [member for member in (ref() for ref in refs) if member is not None]
