# SPDX-License-Identifier: MIT
"""Masks: f32 tensors of ones and zeros that are truth values, as PyTorch's of dtype bool.

ggml has no type for them. The layout of a node says it; a function that looks at it needs no other
key than the layouts of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend.library import lib
from .moves import note_change
from .node import Node

__all__ = [
    "SAME_NUMBERS",
    "as_mask_of",
    "change_truth",
    "is_mask",
    "note_mask",
    "note_numbers",
    "stays_mask",
    "note_result",
]

SAME_NUMBERS = (
    lib.GGML_OP_RESHAPE,
    lib.GGML_OP_VIEW,
    lib.GGML_OP_PERMUTE,
    lib.GGML_OP_TRANSPOSE,
    lib.GGML_OP_CONT,
    lib.GGML_OP_REPEAT,
)
# Ops whose result has elements of the first operand, and zeros.
_OF_FIRST = frozenset(
    (
        *SAME_NUMBERS,
        lib.GGML_OP_DIAG,
        lib.GGML_OP_DIAG_MASK_ZERO,
        lib.GGML_OP_DUP,
        lib.GGML_OP_GET_ROWS,
        lib.GGML_OP_PAD,
        lib.GGML_OP_ROLL,
        lib.GGML_OP_TRI,
    )
)
# Ops with elements of two operands; the product is the "and" of both.
_OF_BOTH = frozenset((lib.GGML_OP_CONCAT, lib.GGML_OP_MUL, lib.GGML_OP_SET_ROWS))


def note_mask(node: Node) -> None:
    """Note that an f32 node's numbers are truth values, 1 and 0."""
    if node.ptr.type == lib.GGML_TYPE_F32:
        node.layout = node.layout.with_truth(True)


def note_numbers(node: Node) -> None:
    """Note that a node's numbers are no truth values, whatever they are."""
    node.layout = node.layout.with_truth(False)


def is_mask(node: Node) -> bool:
    """Return True if a node's numbers are known to be truth values."""
    return node.layout.of_truth


def note_result(node: Node, operands: Sequence[Node]) -> None:
    """Note that what an op made is a mask, if it moves or selects elements of one."""
    op = node.ptr.op  # first, as the layout of what is being traced may not be known yet
    if op in _OF_FIRST:
        if operands[0].layout.of_truth:
            note_mask(node)
    elif op in _OF_BOTH and operands[0].layout.of_truth and operands[1].layout.of_truth:
        note_mask(node)


def as_mask_of(source: Node, copy: Node) -> Node:
    """Return a copy of a node's numbers, noted as a mask if the node is one."""
    if source.layout.of_truth:
        note_mask(copy)
    return copy


def stays_mask(node: Node, values: np.ndarray) -> bool:
    """Return True for a mask that only 1 and 0 are written into."""
    return node.layout.of_truth and bool(((values == 0) | (values == 1)).all())


def change_truth(node: Node, of_truth: bool) -> None:
    """Note that a stored node became a mask, or numbers; graphs that read it are made anew."""
    if node.layout.of_truth is not of_truth:
        (note_mask if of_truth else note_numbers)(node)
        note_change()
