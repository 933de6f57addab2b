# SPDX-License-Identifier: MIT
"""Stored tensors computed from parameters: a backward that meets one raises."""

from __future__ import annotations

from ..backend.library import ffi, lib
from .node import Node, NodeTable

__all__ = ["is_detached", "stop_gradients", "stopped_by"]

_STOPS: NodeTable[str] = NodeTable()
_FLOATS = (lib.GGML_TYPE_F32, lib.GGML_TYPE_F16, lib.GGML_TYPE_BF16)


def stop_gradients(what: str, node: Node) -> None:
    """Note that stored numbers were computed from parameters.

    Args:
        what: says of what they are, and what to do; for errors.
        node: holds them.
    """
    _STOPS[node] = what


def stopped_by(node: Node) -> str | None:
    """Return what is said of the numbers that stop a node's gradients, or None."""
    seen: set[int] = set()
    todo = [node]
    while todo:
        at = todo.pop()
        if id(at) in seen or at.ptr.type not in _FLOATS:
            continue
        seen.add(id(at))
        if at.buffer is None:
            todo += at.srcs[1:] if is_detached(at) else at.srcs
        elif at in _STOPS:
            return _STOPS.get(at)
    return None


def is_detached(node: Node) -> bool:
    """Return True for what `without_gradient` records, a view that names no operand.

    Its first source is what it is a view of; the others are the gates of a custom function.
    """
    return bool(node.ptr.op == lib.GGML_OP_VIEW and node.ptr.src[0] == ffi.NULL)
