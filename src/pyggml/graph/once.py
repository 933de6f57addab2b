# SPDX-License-Identifier: MIT
"""Runs that give recorded tensors their numbers, and leave them recorded where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..backend.buffers import writes
from ..tensors.live import held_again
from ..tensors.node import Node
from ..tensors.tensor import Tensor
from .attached_updates import attach_again, end_updates
from .graph import Graph

__all__ = ["run_once"]


def run_once(tensors: Sequence[Tensor], nodes: Iterable[Node], make: Callable[[], Graph]) -> Graph:
    """Make a graph of recorded tensors and run it, with the updates attached to them.

    Where it fails, the tensors are held as before: a later read or write computes them. So are the
    updates, unless the run had begun to write.

    Args:
        tensors: what the graph computes.
        nodes: all that is below them.
        make: returns the graph.
    """
    hold_again = held_again(tensors)
    ended: list[tuple[Node, list[Node]]] = []
    before = writes()
    try:
        graph = make()
        # The run itself may write a tensor that others read: they are computed first, and must not
        # carry out the updates again.
        end_updates(nodes, ended)
        before = writes()
        graph.run()
    except BaseException:
        hold_again()
        if writes() == before:
            attach_again(ended)
        raise
    return graph
