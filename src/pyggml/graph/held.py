# SPDX-License-Identifier: MIT
"""Numbers of tensors that the program still holds, kept when `backward()` has computed them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import numpy as np

from ..backend.device import COMPUTE_LOCK
from ..backend.library import ffi, lib
from ..tensors.node import Node
from ..tensors.tensor import Tensor
from .graph import Graph

__all__ = ["Held", "Late", "computed_below", "held_tensors"]


class Late:
    """Numbers of an output that stay in a graph's memory until that is used again.

    Args:
        graph: has run.
        output: one of its outputs.
    """

    __slots__ = ("__weakref__", "_graph", "_output", "_own")

    def __init__(self, graph: Graph, output: Tensor):
        self._graph: Graph | None = graph
        self._output: Tensor | None = output
        self._own: Tensor | None = None

    def read(self) -> np.ndarray:
        """Copy the numbers out."""
        with COMPUTE_LOCK:
            if self._graph is not None and self._output is not None:
                return self._graph.read(self._output)
            return self.tensor().numpy()

    def tensor(self) -> Tensor:
        """Return them in a tensor of their own, made at the first call."""
        with COMPUTE_LOCK:
            if self._graph is not None and self._output is not None:
                self._own = self._graph.fetch(self._output)
                self._graph = self._output = None
        assert self._own is not None
        return self._own


class Held:
    """The outputs in memory that graphs share."""

    def __init__(self) -> None:
        self._late: list[weakref.ref[Late]] = []

    def hand_out(self, graph: Graph, tensors: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Give tensors the numbers of a graph's last run.

        Args:
            graph: has run.
            tensors: what the program holds.
            outputs: the graph's output of each.
        """
        for t, output in zip(tensors, outputs, strict=True):
            late = Late(graph, output)
            t.keep(late)
            self._late.append(weakref.ref(late))

    def settle(self) -> None:
        """Copy what is still held out of the memory, before it is used again."""
        late, self._late = self._late, []
        for each in late:
            found = each()
            if found is not None:
                found.tensor()


def held_tensors(nodes: Iterable[Node], loss: Tensor) -> dict[int, Tensor]:
    """Return what of a loss's nodes the program holds and has not read, by place in `nodes`.

    Views of stored tensors are left out: they cost nothing to make again.
    """
    held: dict[int, Tensor] = {}
    for i, node in enumerate(nodes):
        if node.holder is not None and node is not loss.node:
            t = node.holder()
            if t is not None and not t.is_computed and not node.layout.views_stored:
                held[i] = t
    return held


def computed_below(root: Node) -> dict[Tensor, Tensor]:
    """Return the results nearest below a node that are held and computed, and their numbers."""
    known: dict[Tensor, Tensor] = {}
    seen: set[int] = set()
    todo = list(root.srcs)
    while todo:
        node = todo.pop()
        if id(node) in seen or node.buffer is not None:
            continue
        seen.add(id(node))
        t = None if node.holder is None else node.holder()
        numbers = None if t is None or not _is_whole(node) else t if t.is_stored else t.computed
        if numbers is None:
            todo += node.srcs
        else:
            known[Tensor(node)] = numbers
    return known


def _views_stored(node: Node) -> bool:
    """Return True for a view of a stored tensor."""
    root = node.ptr.view_src
    return False if root == ffi.NULL else bool(root.buffer != ffi.NULL)


def _is_whole(node: Node) -> bool:
    """Return True for a result with memory of its own, and for another shape of a whole one."""
    ptr, root = node.ptr, node.ptr.view_src
    if root == ffi.NULL:
        return True
    same = lib.ggml_nbytes(ptr) == lib.ggml_nbytes(root)
    return bool(ptr.op == lib.GGML_OP_RESHAPE and same and not _views_stored(node))
