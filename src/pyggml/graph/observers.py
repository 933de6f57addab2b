# SPDX-License-Identifier: MIT
"""Observers see the ops of a running graph one by one, and can end it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..backend import dtypes
from ..backend.library import ffi, lib
from ..backend.scopes import Scope, Scopes
from ..errors import Copyable
from ..tensors.node import Node

__all__ = [
    "MAKERS",
    "LossError",
    "LossGuard",
    "Observer",
    "Observers",
    "observe",
    "observers",
    "read_floats",
]


class Observer(Protocol):
    """Sees the ops of one run of a graph.

    Attributes:
        error: raised by `run` after the graph ended.
    """

    error: Exception | None

    def before(self, ptr: Any) -> bool:
        """Return True to be shown this op once it is computed."""

    def after(self, ptr: Any) -> bool:
        """Look at a computed op; return False to end the graph."""


Maker = Callable[[Mapping[int, Node]], Observer]


# Who makes the observers of this thread.
MAKERS = Scopes()


def observe(make: Maker) -> Scope:
    """Observe every graph that runs on this thread inside the block.

    Args:
        make: makes the observer of a run, from the recorded nodes by the address of their header
            in the graph. The same one twice observes once.
    """
    return Scope(MAKERS, make)


def observers(recorded: Mapping[int, Node]) -> list[Observer]:
    """Make the observers of one run."""
    if not MAKERS.entries:
        return []
    return [make(recorded) for make in dict.fromkeys(MAKERS)]


class Observers:
    """The scheduler's callback: shows each op to several observers.

    Args:
        each: in the order in which they see an op.
    """

    def __init__(self, each: Sequence[Observer]):
        self._each = each
        self.handle = ffi.new_handle(self)

    @property
    def error(self) -> Exception | None:
        """The first error of an observer."""
        return next((o.error for o in self._each if o.error is not None), None)

    def __call__(self, ptr: Any, ask: bool) -> bool:
        """Answer ggml, which asks whether to show a node, and then shows it."""
        if self.error is not None:  # of several devices, ggml goes on with the next one's part
            return ask
        if ask:
            wanted = [o.before(ptr) for o in self._each]
            return any(wanted)
        fine = [o.after(ptr) for o in self._each]
        return all(fine)


def read_floats(ptr: Any) -> np.ndarray | None:
    """Copy a float tensor's numbers out, with any strides; None for other dtypes."""
    dtype = dtypes.dtype_of_type(ptr.type)
    if not dtype.is_float:
        return None
    raw = np.empty(int(lib.ggml_nbytes(ptr)), np.uint8)
    lib.ggml_backend_tensor_get(ptr, ffi.from_buffer(raw), 0, raw.size)
    usable = raw.size // dtype.type_size * dtype.type_size
    return dtypes.decode(raw[:usable], dtype, (usable // dtype.type_size,))


class LossError(Copyable, FloatingPointError):
    """A loss that is not finite ended a graph.

    Attributes:
        spoiled: what the graph updates may have been changed before it ended.
    """

    def __init__(self, value: float, spoiled: bool):
        left = "what it updates may be spoiled" if spoiled else "nothing was updated"
        super().__init__(f"graph: the loss must be finite; got {value}; {left}")
        self.spoiled = spoiled


class LossGuard:
    """The observer that ends a graph at a loss which is not finite.

    Args:
        loss: the loss's header in the graph.
        alone: one device computes all; else ggml goes on in part after the end.
    """

    def __init__(self, loss: Any, alone: bool):
        self._loss = loss
        self._alone = alone
        self._passed = False
        self.error: Exception | None = None

    def before(self, ptr: Any) -> bool:
        """Ask for the loss alone."""
        return not self._passed and bool(ptr == self._loss)

    def after(self, ptr: Any) -> bool:
        """End the graph where the loss is not finite."""
        if self._passed or ptr != self._loss:
            return True
        self._passed = True
        value = read_floats(ptr)
        if value is not None and not np.isfinite(value).all():
            self.error = LossError(float(value.reshape(-1)[0]), not self._alone)
        return self.error is None
