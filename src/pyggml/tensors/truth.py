# SPDX-License-Identifier: MIT
"""Masks: the f32 tensors of ones and zeros that comparisons give, known as such."""

from __future__ import annotations

import numpy as np

from ..backend.library import lib
from .node import Node, NodeTable

__all__ = ["SAME_NUMBERS", "as_mask_of", "check_truth", "is_mask", "note_mask"]

_MASKS: NodeTable[bool] = NodeTable()
SAME_NUMBERS = (
    lib.GGML_OP_RESHAPE,
    lib.GGML_OP_VIEW,
    lib.GGML_OP_PERMUTE,
    lib.GGML_OP_TRANSPOSE,
    lib.GGML_OP_CONT,
    lib.GGML_OP_REPEAT,
)


def note_mask(node: Node) -> None:
    """Note that a node's numbers are truth values, 1 and 0."""
    _MASKS[node] = True


def is_mask(node: Node) -> bool:
    """Return True if a node, or what it is a part or a copy of, is known to be a mask."""
    while node not in _MASKS:
        if node.call is not None and not node.call.repeats:
            return False
        if node.buffer is not None or node.ptr.op not in SAME_NUMBERS or not node.srcs:
            return False
        node = node.srcs[0]
    return bool(node.ptr.type == lib.GGML_TYPE_F32)


def as_mask_of(source: Node, copy: Node) -> Node:
    """Return a copy of a node's numbers, noted as a mask if the node is one."""
    if is_mask(source):
        _MASKS[copy] = True
    return copy


def check_truth(node: Node, values: np.ndarray) -> None:
    """Forget that a node is a mask if other numbers than 1 and 0 are written into it."""
    if node in _MASKS and not ((values == 0) | (values == 1)).all():
        _MASKS.discard(node)
