# SPDX-License-Identifier: MIT
"""Stored tensors that moved to another device, or became masks: graphs made before must not run."""

from __future__ import annotations

from .node import Node, NodeTable

__all__ = ["has_moved", "move_count", "note_change", "note_move"]

_MOVED: NodeTable[bool] = NodeTable()
_count = 0


def note_move(node: Node) -> None:
    """Mark a node whose tensor has moved to other memory."""
    _MOVED[node] = True
    note_change()


def note_change() -> None:
    """Count a change of a stored tensor after which graphs that read it must not run."""
    global _count
    _count += 1


def has_moved(node: Node) -> bool:
    """Return True if the node's tensor has moved to other memory."""
    return node in _MOVED


def move_count() -> int:
    """Return the number of changes in this process; while it is the same, no tensor has moved."""
    return _count
