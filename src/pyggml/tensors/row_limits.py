# SPDX-License-Identifier: MIT
"""Limits of stored numbers: of row numbers, as ggml aborts on others, and of a loss's targets."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..errors import ShapeError
from .node import Node, NodeTable
from .truth import SAME_NUMBERS

__all__ = [
    "Check",
    "check_later",
    "check_rows",
    "check_written",
    "has_passed",
    "is_below",
    "limit_rows",
    "note_look",
    "note_passed",
    "row_limit",
    "stored_root",
]

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


def check_rows(
    who: str, rows: np.ndarray, limit: int, name: str = "row numbers, as ids of an embedding,"
) -> None:
    """Raise unless row numbers are those of a table of `limit` rows."""
    if rows.size and (rows.min() < 0 or rows.max() >= limit):
        raise ShapeError(
            f"{who}: {name} must be from 0 to {limit - 1}; got {rows.min()} to {rows.max()}"
        )


class Check(Protocol):
    """A question about a tensor's numbers; equal ones ask the same."""

    def wrong(self, numbers: np.ndarray) -> np.ndarray | None:
        """Return where numbers are wrong; None where all are right."""

    def error(self, numbers: np.ndarray, wrong: np.ndarray) -> ValueError:
        """Return the error of wrong numbers."""


# Of what is written later, and of what was looked at, with the version of the memory.
_LATER: NodeTable[tuple[Check, ...]] = NodeTable()
_PASSED: NodeTable[tuple[int, Check]] = NodeTable()


def check_later(node: Node, check: Check) -> None:
    """Let `copy_` check all numbers that it writes into a stored node from here on."""
    before = _LATER.get(node) or ()
    if check not in before:
        _LATER[node] = (*before, check)


def check_written(who: str, node: Node, numbers: np.ndarray) -> None:
    """Raise for numbers to be written into a stored node that its limit, or a check, finds wrong.

    Args:
        who: leads the error of a row number.
        node: the stored node.
        numbers: what is to be written.
    """
    limit = row_limit(node)
    if limit is not None:
        check_rows(who, numbers, limit)
    for check in _LATER.get(node) or ():
        wrong = check.wrong(numbers)
        if wrong is not None:
            raise check.error(numbers, wrong)


def note_passed(node: Node, check: Check) -> None:
    """Note that a stored node's numbers are right."""
    if node.buffer is not None:
        _PASSED[node] = node.buffer.version, check


def has_passed(node: Node, check: Check) -> bool:
    """Return True for a stored node that has passed a check, and was not written since."""
    return node.buffer is not None and _PASSED.get(node) == (node.buffer.version, check)


def stored_root(node: Node) -> Node | None:
    """Return the stored node whose numbers, or some of them, a node has; None if there is none."""
    while node.buffer is None:
        call = node.call
        if not (node.ptr.op in SAME_NUMBERS if call is None else call.repeats):
            return None
        sources = node.srcs if call is None else node.operands
        if not sources:
            return None
        node = sources[0]
    return node
