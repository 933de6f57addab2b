# SPDX-License-Identifier: MIT
"""Finding the op that first makes a NaN or an infinity."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..backend import dtypes
from ..backend.headers import MOVES, op_name
from ..backend.library import ffi, lib
from ..errors import AnomalyError
from ..tensors.node import Node

__all__ = ["LossError", "LossGuard", "Watcher", "detect_anomaly", "is_watching"]


class _State(threading.local):
    depth = 0


_state = _State()


@contextlib.contextmanager
def detect_anomaly() -> Iterator[None]:
    """Check every op's result while graphs run on this thread; slow, for finding mistakes.

    Raises:
        AnomalyError: from `run`, `numpy` or `backward`, at the first op whose result holds NaN, or
            infinities that did not come with a stored tensor (as a mask's -inf does). It names the
            op and the line that recorded it, and the stored tensor if the NaN came with one.

    Source: torch.autograd.detect_anomaly.

    Example:
        >>> with detect_anomaly():
        ...     pg.ops.log(pg.tensor([0.0])).numpy()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        pyggml.errors.AnomalyError: anomaly: LOG made infinities (1 of 1, (1, 1, 1, 1)), recorded...
    """
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


def is_watching() -> bool:
    """Whether `detect_anomaly` is active on this thread."""
    return _state.depth > 0


def _address(ptr: Any) -> int:
    return int(ffi.cast("uintptr_t", ptr))


def _values(ptr: Any) -> np.ndarray | None:
    """A float tensor's numbers, whatever its strides are; None for other dtypes."""
    dtype = dtypes.dtype_of_type(ptr.type)
    if not dtype.is_float:
        return None
    raw = np.empty(int(lib.ggml_nbytes(ptr)), np.uint8)
    lib.ggml_backend_tensor_get(ptr, ffi.from_buffer(raw), 0, raw.size)
    usable = raw.size // dtype.type_size * dtype.type_size
    return dtypes.decode(raw[:usable], dtype, (usable // dtype.type_size,))


class Watcher:
    """The scheduler's callback: looks at each node when it has been computed.

    Args:
        recorded: nodes by the address of their header in the graph.
    """

    def __init__(self, recorded: Mapping[int, Node]):
        self._recorded = recorded
        self._infinite: set[int] = set()
        self.error: AnomalyError | None = None
        self.handle = ffi.new_handle(self)

    def __call__(self, ptr: Any, ask: bool) -> bool:
        """Asked first, ggml wants to know whether to show the node; then it shows it."""
        if ask:
            return True
        if ptr.op in MOVES:
            self._inherit(ptr)
            return True
        values = _values(ptr)
        if values is None or np.isfinite(values).all():
            return True
        made_nan = bool(np.isnan(values).any())
        if not made_nan and self._inherit(ptr):
            return True
        self.error = AnomalyError(self._describe(ptr, values, made_nan))
        return False

    def _sources(self, ptr: Any) -> list[Any]:
        return [ptr.src[i] for i in range(lib.GGML_MAX_SRC) if ptr.src[i] != ffi.NULL]

    def _inherit(self, ptr: Any) -> bool:
        """Whether a source brought infinities along; the node then may have them, too."""
        for source in self._sources(ptr):
            known = _address(source) in self._infinite
            if not known and source.op == lib.GGML_OP_NONE and source.buffer != ffi.NULL:
                values = _values(source)
                known = values is not None and bool(np.isinf(values).any())
            if known:
                self._infinite.add(_address(ptr))
                return True
        return False

    def _origin_of_nan(self, ptr: Any) -> str:
        """The stored source that brought a NaN along, in words; "" when the op made it."""
        for source in self._sources(ptr):
            root = source.view_src if source.view_src != ffi.NULL else source
            if root.op != lib.GGML_OP_NONE or root.buffer == ffi.NULL:
                continue
            values = _values(root)
            if values is not None and np.isnan(values).any():
                node = self._recorded.get(_address(root))
                shape = tuple(int(n) for n in reversed(list(root.ne)))
                made = f", made at {node.where}" if node is not None else ""
                return f"read NaN from a stored tensor {node.shape if node else shape}{made},"
        return ""

    def _describe(self, ptr: Any, values: np.ndarray, made_nan: bool) -> str:
        what = "NaN" if made_nan else "infinities"
        bad = int(np.count_nonzero(~np.isfinite(values)))
        node = self._recorded.get(_address(ptr))
        if node is not None:
            where = f"recorded at {node.where}"
        else:
            near = [self._recorded.get(_address(s)) for s in self._sources(ptr)]
            found = next((n for n in near if n is not None and n.buffer is None), None)
            where = "in the backward"
            if found is not None:
                where += f" of what was recorded at {found.where}"
        shape = tuple(int(n) for n in reversed(list(ptr.ne)))
        brought = self._origin_of_nan(ptr) if made_nan else ""
        did = f"{brought} and has" if brought else "made"
        return f"anomaly: {op_name(ptr)} {did} {what} ({bad} of {values.size}, {shape}), {where}"


class LossError(FloatingPointError):
    """A loss that is not finite ended a graph.

    Attributes:
        spoiled: what the graph updates may have been changed before it ended.
    """

    def __init__(self, value: float, spoiled: bool):
        left = "what it updates may be spoiled" if spoiled else "nothing was updated"
        super().__init__(f"graph: the loss must be finite; got {value}; {left}")
        self.spoiled = spoiled


class LossGuard:
    """The scheduler's callback that ends a graph at a loss which is not finite.

    Args:
        loss: the loss's header in the graph.
        alone: whether one device computes all; else ggml goes on in part after the end.
        inner: another callback that is to see the nodes, too.
    """

    def __init__(self, loss: Any, alone: bool, inner: Callable[[Any, bool], bool] | None = None):
        self._loss = loss
        self._alone = alone
        self._inner = inner
        self._passed = False
        self._error: LossError | None = None
        self.handle = ffi.new_handle(self)

    @property
    def error(self) -> Exception | None:
        """What ended the graph."""
        return self._error or getattr(self._inner, "error", None)

    def __call__(self, ptr: Any, ask: bool) -> bool:
        """Asked first, ggml wants to know whether to show the node; then it shows it."""
        if self._error is not None:
            return ask
        at_loss = not self._passed and ptr == self._loss
        if ask:
            wanted = self._inner is not None and self._inner(ptr, True)
            return wanted or at_loss
        if self._inner is not None and not self._inner(ptr, False):
            return False
        if at_loss:
            self._passed = True
            value = _values(ptr)
            if value is not None and not np.isfinite(value).all():
                self._error = LossError(float(value.reshape(-1)[0]), not self._alone)
                return False
        return True
