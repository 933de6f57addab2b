# SPDX-License-Identifier: MIT
"""Numbers of tensors that the program still holds, kept when `backward()` has computed them."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ..backend.buffers import Buffer
from ..backend.device import COMPUTE_LOCK
from ..backend.library import ffi, lib
from ..tensors.live import Memory
from ..tensors.node import Node
from ..tensors.storage import store
from ..tensors.tensor import Tensor
from .graph import Graph
from .walk import sources_of

__all__ = ["Below", "Held", "Late", "Numbers", "Operands", "computed_below", "held_tensors"]


class Below:
    """The memory of the stored tensors that a result was computed from.

    Args:
        params: that of parameters.
        nodes: stored nodes.
        places: those of them that are below the result, by their number.
    """

    __slots__ = ("_nodes", "_params", "_places")

    def __init__(self, params: frozenset[Buffer], nodes: Sequence[Node], places: Sequence[int]):
        self._params, self._nodes, self._places = params, nodes, places

    def meets(self, buffers: Collection[Buffer]) -> bool:
        """Return True if one of some buffers is among them."""
        return not self._params.isdisjoint(buffers) or any(
            self._nodes[i].buffer in buffers for i in self._places
        )


class Operands:
    """The stored nodes below results that a kept graph computes, by their places.

    Args:
        nodes: all below the loss, operands first, as `walk_calls` returns them.
        params: those of them that gradients are computed of, which stay the same.
        inputs: the others.
        results: places in `nodes`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        params: Collection[Node],
        inputs: Sequence[Node],
        results: Sequence[int],
    ):
        masks: dict[Node, int] = {}  # with a bit for each stored node
        stored = [*params, *inputs]
        for i, node in enumerate(stored):
            masks[node] = 1 << i
        for node in nodes:
            if node not in masks:
                mask = 0
                for source in sources_of(node):
                    mask |= masks[source]
                masks[node] = mask
        self._found: list[tuple[frozenset[Buffer], list[int]]] = []
        for place in results:
            mask = masks[nodes[place]]
            below = [node.buffer for i, node in enumerate(params) if mask >> i & 1]
            places = [i for i in range(len(inputs)) if mask >> (i + len(params)) & 1]
            self._found.append((frozenset(b for b in below if b is not None), places))

    def of(self, inputs: Sequence[Node]) -> list[Below]:
        """Return what is below each result of a run with these inputs."""
        return [Below(params, inputs, places) for params, places in self._found]


class Numbers:
    """Numbers that have been copied out of a graph, of a tensor that a kept graph computes.

    Args:
        array: the numbers.
        t: the tensor.
        below: the memory that it was computed from.
    """

    __slots__ = ("_array", "_dtype", "_where", "below")

    def __init__(self, array: np.ndarray, t: Tensor, below: Below | None):
        self._array, self._dtype, self._where = array, t.dtype, t.device
        self.below: Memory | None = below

    def read(self) -> np.ndarray:
        """Copy the numbers."""
        return np.array(self._array)

    def tensor(self) -> Tensor:
        """Return them in a stored tensor."""
        return Tensor(store(self._array, self._dtype, self._where, self._array.shape))


class Late:
    """Numbers of an output that stay in a graph's memory until that is used again.

    Args:
        graph: has run.
        output: one of its outputs.
        below: the memory that the output was computed from; None where nobody has asked.
    """

    __slots__ = ("__weakref__", "_graph", "_output", "_own", "below")

    def __init__(self, graph: Graph, output: Tensor, below: Below | None = None):
        self._graph: Graph | None = graph
        self._output: Tensor | None = output
        self._own: Tensor | None = None
        self.below: Memory | None = below

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

    def hand_out(
        self,
        graph: Graph,
        tensors: Sequence[Tensor],
        outputs: Sequence[Tensor],
        below: Sequence[Below] | None = None,
    ) -> None:
        """Give tensors the numbers of a graph's last run.

        Args:
            graph: has run.
            tensors: what the program holds.
            outputs: the graph's output of each.
            below: the memory that each was computed from; None where nobody has asked.
        """
        for i, (t, output) in enumerate(zip(tensors, outputs, strict=True)):
            late = Late(graph, output, below[i] if below else None)
            t.keep(late)
            self._late.append(weakref.ref(late))

    def settle(self) -> None:
        """Copy what is still held out of the memory, before it is used again."""
        for each in self._late:
            found = each()
            if found is not None:
                found.tensor()
        self._late = []  # not before: what could not be copied is copied by the next call


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


def computed_below(roots: Iterable[Node]) -> dict[Tensor, Tensor]:
    """Return the results nearest below nodes that are held and computed, and their numbers."""
    known: dict[Tensor, Tensor] = {}
    seen: set[int] = set()
    todo = [source for root in roots for source in root.srcs]
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
