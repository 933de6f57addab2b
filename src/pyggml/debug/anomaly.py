# SPDX-License-Identifier: MIT
"""Finding the op that first makes a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend.headers import MOVES, address, op_name, operands
from ..backend.library import ffi, lib
from ..backend.scopes import Scope
from ..errors import AnomalyError
from ..graph.observers import observe, read_floats
from ..tensors.node import Node

__all__ = ["AnomalyFinder", "detect_anomaly"]


def detect_anomaly() -> Scope:
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
    return observe(AnomalyFinder)


class AnomalyFinder:
    """The observer that looks at the numbers of each op.

    Args:
        recorded: nodes by the address of their header in the graph.
    """

    def __init__(self, recorded: Mapping[int, Node]):
        self._recorded = recorded
        self._infinite: set[int] = set()
        self.error: Exception | None = None

    def before(self, ptr: Any) -> bool:
        """Ask for every op."""
        del ptr
        return True

    def after(self, ptr: Any) -> bool:
        """End the graph at the first anomaly."""
        if ptr.op in MOVES:
            self._inherit(ptr)
            return True
        values = read_floats(ptr)
        if values is None or np.isfinite(values).all():
            return True
        made_nan = bool(np.isnan(values).any())
        if not made_nan and self._inherit(ptr):
            return True
        self.error = AnomalyError(self._describe(ptr, values, made_nan))
        return False

    def _inherit(self, ptr: Any) -> bool:
        """Return True if an operand has infinities; the result then may have them, too."""
        for source in operands(ptr):
            known = address(source) in self._infinite
            if not known and source.op == lib.GGML_OP_NONE and source.buffer != ffi.NULL:
                values = read_floats(source)
                known = values is not None and bool(np.isinf(values).any())
            if known:
                self._infinite.add(address(ptr))
                return True
        return False

    def _origin_of_nan(self, ptr: Any) -> str:
        """Describe the stored operand that holds NaN; "" where the op made it."""
        for source in operands(ptr):
            root = source.view_src if source.view_src != ffi.NULL else source
            if root.op != lib.GGML_OP_NONE or root.buffer == ffi.NULL:
                continue
            values = read_floats(root)
            if values is not None and np.isnan(values).any():
                node = self._recorded.get(address(root))
                shape = tuple(int(n) for n in reversed(list(root.ne)))
                made = f", made at {node.where}" if node is not None else ""
                return f"read NaN from a stored tensor {node.shape if node else shape}{made},"
        return ""

    def _describe(self, ptr: Any, values: np.ndarray, made_nan: bool) -> str:
        what = "NaN" if made_nan else "infinities"
        bad = int(np.count_nonzero(~np.isfinite(values)))
        node = self._recorded.get(address(ptr))
        if node is not None:
            where = f"recorded at {node.where}"
        else:
            near = [self._recorded.get(address(s)) for s in operands(ptr)]
            found = next((n for n in near if n is not None and n.buffer is None), None)
            where = "in the backward"
            if found is not None:
                where += f" of what was recorded at {found.where}"
        shape = tuple(int(n) for n in reversed(list(ptr.ne)))
        brought = self._origin_of_nan(ptr) if made_nan else ""
        did = f"{brought} and has" if brought else "made"
        return f"anomaly: {op_name(ptr)} {did} {what} ({bad} of {values.size}, {shape}), {where}"
