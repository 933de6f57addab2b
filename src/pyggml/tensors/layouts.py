# SPDX-License-Identifier: MIT
"""The layout of an operand: all that functions ask about it besides its numbers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from ..backend.device import Device
from ..backend.library import ffi, lib

__all__ = ["Layout", "Recalled", "layout_of"]

_T = TypeVar("_T")

_MOST = 1024


class Recalled(Generic[_T]):
    """A table that forgets what was not asked for during its last thousand new entries."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: dict[Hashable, _T] = {}
        self._before: dict[Hashable, _T] = {}

    def get(self, key: Hashable) -> _T | None:
        """Return the entry of a key, or None."""
        found = self._now.get(key)
        if found is None:
            found = self._before.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Hashable, value: _T) -> _T:
        """Add an entry, and return its value."""
        if len(self._now) >= _MOST:
            self._before, self._now = self._now, {}
        self._now[key] = value
        return value


class Layout:
    """Shape, type, device, strides, truth; of two tensors with equal ones it is the same object.

    Attributes:
        shape: Python shape.
        device: where the tensor is.
        is_view: it names memory of another tensor.
        views_stored: that of a stored one.
        of_truth: the numbers are truth values, 1 and 0; see `truth`.
    """

    __slots__ = ("_other", "device", "is_view", "of_truth", "shape", "views_stored")

    def __init__(self, shape: tuple[int, ...], device: Device, is_view: bool, views_stored: bool):
        self.shape, self.device = shape, device
        self.is_view, self.views_stored = is_view, views_stored
        self.of_truth = False
        self._other: Layout | None = None

    def with_truth(self, of_truth: bool) -> Layout:
        """Return the same layout of truth values, or of numbers."""
        if of_truth is self.of_truth:
            return self
        if self._other is None:
            other = Layout(self.shape, self.device, self.is_view, self.views_stored)
            other.of_truth, other._other = of_truth, self
            self._other = other
        return self._other


_layouts: Recalled[Layout] = Recalled()


def layout_of(ptr: Any, shape: tuple[int, ...], device: Device, stored: bool) -> Layout:
    """Return the layout of a header."""
    root = ptr.view_src
    is_view = bool(root)
    strides = tuple(ffi.unpack(ptr.nb, lib.GGML_MAX_DIMS)) if is_view else None
    views_stored = is_view and bool(root.buffer)
    key = shape, ptr.type, device, stored, strides, views_stored
    return _layouts.get(key) or _layouts.put(key, Layout(shape, device, is_view, views_stored))
