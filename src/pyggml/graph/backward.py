# SPDX-License-Identifier: MIT
"""`loss.backward()`: the gradients of a recorded loss, by a graph that is kept for later steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..backend.device import COMPUTE_LOCK
from ..backend.dtypes import dtype_of_type
from ..backend.library import lib
from ..backend.lru import LRUCache
from ..errors import GradientError
from ..tensors.create import zeros_group
from ..tensors.gradients import gradient_of, has_hooks
from ..tensors.node import Node, NodeTable
from ..tensors.storage import allocate
from ..tensors.tensor import Tensor
from ..tensors.tracing import outer
from .graph import Graph, tensor_like
from .held import Held, Numbers, Operands, held_tensors
from .memory_plan import Activations
from .observers import MAKERS
from .once import run_once
from .reentry import NoReentry
from .structure import Structure, copy_recording
from .walk import check_current, walk_calls

__all__ = ["backward", "kept_graphs"]

# Graphs that a model keeps, and their bytes beside the memory of activations, which they share.
_MOST_GRAPHS = 16
_MOST_BYTES = 2**28
# Structures that have been met once.
_MOST_SEEN = 64

_once = NoReentry("backward")


@dataclass(eq=False)
class _Kept:
    """The graph of a structure.

    Args:
        graph: computes loss and gradients.
        loss: its output.
        inputs: the stored nodes that it reads, but for parameters; as in `Structure.inputs`.
        own: those of them, by their number, that are its own and are overwritten before a run.
        grads: gradients of its own, copied into those that a step makes; none where the parameters'
            gradients stay the same tensors.
        outputs: what the program holds besides the loss.
        operands: of the loss and the outputs.
    """

    graph: Graph
    loss: Tensor
    inputs: list[Node]
    own: dict[int, Node]
    grads: list[Tensor]
    outputs: list[Tensor]
    operands: Operands

    def size_bytes(self) -> int:
        """Return the bytes that keeping it takes."""
        own = sum(int(lib.ggml_nbytes(node.ptr)) for node in self.own.values())
        return self.graph.kept_bytes + own + sum(grad.nbytes for grad in self.grads)

    def run(self, inputs: Sequence[Node], grads: Iterable[Tensor]) -> np.ndarray:
        """Compute for other inputs; return the loss.

        Args:
            inputs: as in `Structure.inputs`.
            grads: of the parameters, in their order.
        """
        for i, own in self.own.items():
            lib.ggml_backend_tensor_copy(inputs[i].ptr, own.ptr)
        self.graph.run()
        if self.grads:
            for own_grad, grad in zip(self.grads, grads, strict=True):
                lib.ggml_backend_tensor_copy(own_grad.ptr, grad.ptr)
                grad.buffer.write()
        return self.graph.read(self.loss)


class _Graphs:
    """The graphs of the losses whose first parameter is the same."""

    def __init__(self) -> None:
        self.kept: LRUCache[_Kept] = LRUCache(_MOST_GRAPHS, _MOST_BYTES, _Kept.size_bytes)
        self.seen: LRUCache[list[int]] = LRUCache(_MOST_SEEN, 1, lambda _: 0)
        self.held = Held()
        self._activations: Activations | None = None

    def activations(self, loss: Tensor) -> Activations | None:
        """Return the memory that the graphs share, as large as the largest needs."""
        if loss.device.kind != "cpu":
            return None
        if self._activations is None or self._activations.device is not loss.device:
            self._activations = Activations(loss.device)
        return self._activations

    def find(
        self,
        recorded: Structure,
        grads: Mapping[Node, Tensor],
        are_new: bool,
        are_zero: bool,
        held: Sequence[int],
    ) -> _Kept | None:
        """Return the graph of a structure that is met for the second time or later.

        Args:
            recorded: the structure.
            grads: gradient of each parameter.
            are_new: whether all of them were made for this step.
            are_zero: whether they are zeros, which the graph may overwrite.
            held: places of the nodes that the program holds.
        """
        key = (recorded.key, are_zero, *held)
        found = self.kept.get(key)
        if found is not None and found.graph.is_current:
            pairs = enumerate(zip(recorded.inputs, found.inputs, strict=True))
            changed = {i for i, (new, old) in pairs if new is not old and i not in found.own}
            if not changed:
                return found
            return self._keep(
                key, recorded, grads, changed | found.own.keys(), are_new, are_zero, held
            )
        inputs = [id(node) for node in recorded.inputs]
        before = self.seen.get(hash(key))
        if before is None:
            self.seen.put(hash(key), inputs)
            return None
        changed = {i for i, (a, b) in enumerate(zip(inputs, before, strict=False)) if a != b}
        return self._keep(key, recorded, grads, changed, are_new, are_zero, held)

    def _keep(
        self,
        key: Hashable,
        recorded: Structure,
        grads: Mapping[Node, Tensor],
        changed: set[int],
        are_new: bool,
        are_zero: bool,
        held: Sequence[int],
    ) -> _Kept:
        """Make a graph with stored tensors of its own in the places whose tensor changes."""
        own = {i: _node_like(recorded.inputs[i]) for i in sorted(changed)}
        places = {id(recorded.inputs[i]): node for i, node in own.items()}
        copies = copy_recording(recorded.nodes, places)
        loss, outputs = Tensor(copies[-1]), [Tensor(copies[i]) for i in held]
        made: list[Tensor] = []
        if are_new:
            made = zeros_group([(p.shape, "f32") for p in grads], loss.device)
            grads = dict(zip(grads, made, strict=True))
        shared = self.activations(loss)
        graph = Graph(
            [loss, *outputs],
            loss=loss,
            grads=_by_tensor(grads),
            overwrite=are_zero,
            activations=shared,
        )
        inputs = [own.get(i, node) for i, node in enumerate(recorded.inputs)]
        results = [len(recorded.nodes) - 1, *held]
        operands = Operands(recorded.nodes, list(grads), recorded.inputs, results)
        return self.kept.put(key, _Kept(graph, loss, inputs, own, made, outputs, operands))


# The graphs go with the parameter.
_GRAPHS: NodeTable[_Graphs] = NodeTable()


def kept_graphs(param: Tensor) -> int:
    """Return how many graphs are kept of the losses that `param` is the first parameter of."""
    graphs = _GRAPHS.get(param.node)
    return 0 if graphs is None else len(graphs.kept)


def backward(loss: Tensor) -> Numbers:
    """Add d(loss)/d(p) into `p.grad` of each stored p that requires it; return the loss.

    When a structure is met for the second time, its graph is kept and found again in later steps:
    the same ops, shapes and numbers in them, the same parameters and gradients, and inputs of the
    same shapes. The graphs used longest ago are dropped beyond 16 or 256 MiB, all of them with the
    first parameter.
    """
    if outer() is not None:
        raise GradientError(
            f"backward: a function that {outer()} records must not call it, as it would run only"
            " now; return the loss and call it outside, or use value_and_grad"
        )
    nodes = walk_calls(loss.node)
    check_current("backward", nodes)
    grads: dict[Node, Tensor] = {}
    n_new = 0
    with COMPUTE_LOCK:  # another thread must not add to new gradients, or write inputs, between
        for node in nodes:
            if node.buffer is None or not node.requires_grad:
                continue
            grad = gradient_of(node)
            if grad is None:
                param = Tensor(node)
                grad = param.grad = tensor_like(param)
                n_new += 1
            grads[node] = grad
        value = _compute(loss, nodes, grads, n_new)
    for node in grads:
        if has_hooks(node):
            Tensor(node).run_hooks()
    return value


def _by_tensor(grads: Mapping[Node, Tensor]) -> dict[Tensor, Tensor]:
    return {Tensor(node): grad for node, grad in grads.items()}


def _compute(
    loss: Tensor, nodes: Sequence[Node], grads: Mapping[Node, Tensor], n_new: int
) -> Numbers:
    """Compute gradients and loss by a kept graph, or by one that is made for this call."""
    are_new = n_new == len(grads)
    held = held_tensors(nodes, loss)
    # What observes the ops names the lines that recorded them, and those of an earlier step are
    # another program's.
    recorded = None
    if (are_new or not n_new) and not loss.is_stored and not MAKERS.entries:
        recorded = Structure(nodes, dict.fromkeys(grads) if are_new else grads)
    if not grads or recorded is None or recorded.key is None:
        return _compute_once(loss, nodes, grads, held.values())
    first = next(iter(grads))
    graphs = _GRAPHS.get(first)
    if graphs is None:
        graphs = _GRAPHS[first] = _Graphs()
    _once.enter()
    try:
        graphs.held.settle()
        are_zero = are_new or _are_zero(grads)
        kept = graphs.find(recorded, grads, are_new, are_zero, list(held))
        if kept is None:
            shares = graphs if len(graphs.kept) else None
            return _compute_once(loss, nodes, grads, held.values(), shares)
        value = kept.run(recorded.inputs, grads.values())
        of_loss, *below = kept.operands.of(recorded.inputs)
        graphs.held.hand_out(kept.graph, list(held.values()), kept.outputs, below)
        return Numbers(value, loss, of_loss)
    finally:
        _once.leave()


def _are_zero(grads: Mapping[Node, Tensor]) -> bool:
    """Return True for gradients that nothing was written into since they were set to zero."""
    buffers = {grad.buffer for grad in grads.values()}
    return all(buffer.is_clear for buffer in buffers) and not any(
        node.buffer in buffers for node in grads
    )


def _compute_once(
    loss: Tensor,
    nodes: Sequence[Node],
    grads: Mapping[Node, Tensor],
    held: Iterable[Tensor],
    shares: _Graphs | None = None,
) -> Numbers:
    """Compute by a graph for this call alone, in the memory of kept ones if there are any."""
    outputs = list(held)
    roots = [loss, *outputs]
    memory = None if shares is None else shares.activations(loss)
    make = partial(Graph, roots, loss=loss, grads=_by_tensor(grads), activations=memory)

    def give(graph: Graph) -> Numbers:
        now = Held() if shares is None else shares.held
        now.hand_out(graph, outputs, outputs)
        if shares is None:
            # The gradients are there: what there is no memory for stays in the graph's own.
            with suppress(MemoryError):
                now.settle()
        return Numbers(graph.read(loss), loss, None)

    return run_once(roots, nodes, make, give)


def _node_like(node: Node) -> Node:
    """Make a stored node of a stored one's shape, dtype and device."""
    (made,) = allocate([(node.shape, dtype_of_type(node.ptr.type))], node.device)
    return made
