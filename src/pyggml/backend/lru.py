# SPDX-License-Identifier: MIT
"""A least recently used cache with limits of count and memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from .device import COMPUTE_LOCK

__all__ = ["LRUCache"]

_T = TypeVar("_T")


class LRUCache(Generic[_T]):
    """Values by key; beyond a limit the one whose last use is longest ago is dropped.

    Args:
        most: values that are kept.
        most_bytes: what they may take in all.
        least: values that are kept however large they are, those used last.
        size: bytes of a value.
        dropping: called before the first value is dropped.

    Example:
        >>> cache = LRUCache(2, most_bytes=100, size=len)
        >>> for key in "abac":
        ...     _ = cache.get(key) or cache.put(key, key * 3)
        >>> list(cache)
        ['aaa', 'ccc']
    """

    def __init__(
        self,
        most: int,
        most_bytes: int,
        size: Callable[[_T], int],
        dropping: Callable[[], None] | None = None,
        least: int = 1,
    ):
        self._most, self._most_bytes, self._least = most, most_bytes, least
        self._size = size
        self._dropping = dropping
        self._values: dict[Hashable, tuple[_T, int]] = {}

    def get(self, key: Hashable) -> _T | None:
        """Return the value of a key, which is now the one used last; None where there is none."""
        with COMPUTE_LOCK:
            found = self._values.pop(key, None)
            if found is None:
                return None
            self._values[key] = found
        return found[0]

    def put(self, key: Hashable, value: _T) -> _T:
        """Keep a value, and drop others beyond the limits."""
        with COMPUTE_LOCK:
            self._values.pop(key, None)
            self._values[key] = value, self._size(value)
            while self._is_full():
                if self._dropping is not None:
                    tell, self._dropping = self._dropping, None
                    tell()
                del self._values[next(iter(self._values))]
        return value

    def _is_full(self) -> bool:
        """Return True beyond a limit."""
        count = len(self._values)
        return count > self._most or (count > self._least and self.nbytes > self._most_bytes)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(size for _, size in self._values.values())

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[_T]:
        """Iterate over the values, the one used last at the end."""
        with COMPUTE_LOCK:
            return iter([value for value, _ in self._values.values()])

    def drop(self, unwanted: Callable[[Hashable], bool]) -> None:
        """Drop the values of some keys."""
        with COMPUTE_LOCK:
            for key in [key for key in self._values if unwanted(key)]:
                del self._values[key]

    def clear(self) -> None:
        """Drop all values."""
        self._values.clear()
