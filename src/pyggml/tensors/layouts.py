# SPDX-License-Identifier: MIT
"""The layout of an operand: all that functions ask about it besides its numbers."""

from __future__ import annotations

# As the module `weakref` removes what has ended.
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from collections.abc import Hashable
from functools import partial
from typing import Any
from weakref import ref

from ..backend.device import Device
from ..backend.library import ffi, lib

__all__ = ["Layout", "layout_of"]


class Layout:
    """Shape, type, device, strides, truth; of two tensors with equal ones it is the same object.

    Two threads that meet a new one at the same moment may each make theirs: calls with the other
    are then recorded as first ones.

    Attributes:
        shape: Python shape.
        device: where the tensor is.
        is_view: it names memory of another tensor.
        views_stored: that of a stored one.
        of_truth: the numbers are truth values, 1 and 0; see `truth`.
    """

    __slots__ = (
        "__weakref__",
        "_of_numbers",
        "_of_truth",
        "device",
        "is_view",
        "of_truth",
        "shape",
        "views_stored",
    )

    def __init__(self, shape: tuple[int, ...], device: Device, is_view: bool, views_stored: bool):
        self.shape, self.device = shape, device
        self.is_view, self.views_stored = is_view, views_stored
        self.of_truth = False
        # One of truth values keeps that of numbers, and not the other way round: no cycle.
        self._of_numbers: Layout | None = None
        self._of_truth: ref[Layout] | None = None

    def with_truth(self, of_truth: bool) -> Layout:
        """Return the same layout of truth values, or of numbers."""
        if of_truth is self.of_truth:
            return self
        if self._of_numbers is not None:
            return self._of_numbers
        found = None if self._of_truth is None else self._of_truth()
        if found is None:
            found = Layout(self.shape, self.device, self.is_view, self.views_stored)
            found.of_truth, found._of_numbers = True, self
            self._of_truth = ref(found)
        return found


# A layout stays as long as a node or a remembered call has it. If it were forgotten earlier, it
# would be made a second time, and calls remembered with the first would not be found.
_layouts: dict[Hashable, ref[Layout]] = {}


def layout_of(ptr: Any, shape: tuple[int, ...], device: Device, stored: bool) -> Layout:
    """Return the layout of a header."""
    root = ptr.view_src
    is_view = bool(root)
    strides = tuple(ffi.unpack(ptr.nb, lib.GGML_MAX_DIMS)) if is_view else None
    views_stored = is_view and bool(root.buffer)
    key = shape, ptr.type, device, stored, strides, views_stored
    known = _layouts.get(key)
    found = None if known is None else known()
    if found is None:
        found = Layout(shape, device, is_view, views_stored)
        # All of C; see `WeakGroup`. A newer layout of the key is left there.
        _layouts[key] = ref(found, partial(next, map(_remove_dead_weakref, (_layouts,), (key,))))
    return found
