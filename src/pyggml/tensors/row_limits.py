# SPDX-License-Identifier: MIT
"""Row numbers: each is below the number of rows of its table, as ggml aborts on others."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from .node import Node, NodeTable

__all__ = ["check_rows", "is_below", "limit_rows", "note_look", "row_limit"]

_LIMITS: NodeTable[int] = NodeTable()
# The versions of the memory in which stored numbers were looked at.
_LOOKED_AT: NodeTable[int] = NodeTable()


def row_limit(node: Node) -> int | None:
    """Return the bound below which all numbers of a node are; None if it is unknown."""
    return _LIMITS.get(node)


def limit_rows(node: Node, limit: int) -> None:
    """Note that all numbers of a node are, and stay, below `limit`; `copy_` checks later writes."""
    before = _LIMITS.get(node)
    _LIMITS[node] = limit if before is None else min(limit, before)


def is_below(node: Node, limit: int) -> bool:
    """Return True if a stored node's numbers were below `limit`, and nothing was written since."""
    known = _LIMITS.get(node)
    if known is None or known > limit or node.buffer is None:
        return False
    return _LOOKED_AT.get(node) == node.buffer.version


def note_look(node: Node) -> None:
    """Note that the numbers of a stored node have been compared with its limit."""
    if node.buffer is not None:
        _LOOKED_AT[node] = node.buffer.version


def check_rows(who: str, rows: np.ndarray, limit: int, name: str = "row numbers") -> None:
    """Raise unless row numbers are those of a table of `limit` rows."""
    if rows.size and (rows.min() < 0 or rows.max() >= limit):
        raise ShapeError(
            f"{who}: {name} must be from 0 to {limit - 1}; got {rows.min()} to {rows.max()}"
        )
