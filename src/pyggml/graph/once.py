# SPDX-License-Identifier: MIT
"""Runs that give recorded tensors their numbers, and leave them recorded where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..backend.buffers import Buffer
from ..backend.undivided import Undivided
from ..tensors.live import before_write, held_again, release
from ..tensors.node import Node
from ..tensors.tensor import Tensor
from .attached_updates import attach_again, end_updates, targets
from .graph import Graph

__all__ = ["run_once"]

_T = TypeVar("_T")


def run_once(
    tensors: Sequence[Tensor],
    nodes: Iterable[Node],
    make: Callable[[], Graph],
    give: Callable[[Graph], _T],
) -> _T:
    """Make a graph of recorded tensors and run it, with the updates attached to them.

    Where it fails, the tensors are held as before, so that a later read or write computes them. The
    updates stay attached to them, unless the run has begun to write.

    Args:
        tensors: what the graph computes.
        nodes: all that is below them.
        make: returns the graph.
        give: gives the tensors their numbers after the run.

    Returns:
        What `give` returns.
    """
    hold_again = held_again(tensors)
    ended: list[tuple[Node, list[Node]]] = []
    written: dict[Node, Buffer] = {}
    before: list[int] = []
    try:
        graph = make()
        for t in tensors:
            release(t)
        # What else reads the targets is computed first, and must not carry out the updates again.
        end_updates(nodes, ended)
        written = targets(ended)
        before_write(written.values())
        before = [buffer.version for buffer in written.values()]
        graph.run()
        return give(graph)
    except BaseException:
        with Undivided():
            hold_again()
            if not before or before == [buffer.version for buffer in written.values()]:
                attach_again(ended)
        raise
