# SPDX-License-Identifier: MIT
"""A graph before its memory is planned: recorded nodes, their headers in ggml, and their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..backend.buffers import Buffer
from ..backend.device import Device
from ..backend.headers import MOVES, address
from ..backend.library import ffi, lib
from ..tensors.create import full
from ..tensors.node import Arena, Node
from ..tensors.tensor import Tensor
from .attached_updates import with_updates
from .backward_checks import backward_headers, check_path, check_unread
from .pullbacks import CustomBackwards
from .walk import divide, is_placeholder, walk

__all__ = ["Gradients", "Pass", "Plan"]

# Tensors that the gradient of one op may make at most, but for a few ops with small results.
_TENSORS_PER_GRADIENT = 16
# Headers of rounded operands at most: a matmul or attention and its gradients have six operands,
# each of which has a copy and two views.
_ROUNDED_PER_OP = 18
_ROUNDING = (lib.GGML_OP_MUL_MAT, lib.GGML_OP_OUT_PROD, lib.GGML_OP_FLASH_ATTN_EXT)
# Headers for outputs and accumulators.
_HEADERS_SPARE = 256

# Parameter and gradient by the id of the parameter's node.
Gradients = Mapping[int, tuple[Node, Tensor]]


class Plan:
    """The ops of a graph, in the order of computing; passes rewrite it.

    Args:
        device: where it runs.
        outputs: nodes that are read after a run.
        effects: in-place ops to carry out at the end.
        loss: scalar whose gradient is computed, or None.
        loss_grad: stored scalar that the backward starts from; None means 1.
        gradients: as `check_request` returns them.
        overwrite: write gradients over what is in their tensors, instead of adding.
        known: recorded node, and the stored one in its place, by the id of the former.

    Attributes:
        outputs: ids of the nodes that are read after a run.
        forward: nodes of outputs and loss, operands first.
        updates: nodes that come after the backward, or right after the gradients that they need.
        updates_write: whether one of them writes into a stored tensor.
        forward_writes: whether an op before them does.
        stored: the stored nodes among all.
        custom: backwards of custom functions.
        transient: parameter and placeholder of each gradient that is not stored, by the
            placeholder's id.
        headers: the graph's `ggml_tensor *` of each recorded one, by the address of the latter.
        recorded: the node of each of these headers, by its address.
        order: headers in the order of computing.
        n_forward: how many of them come before the last one of the forward is done.
        loss_header: the loss's.
        cleared: gradients that must be zero before a run.
        fallbacks: ops that the CPU computes for the device, and how many of each.
        cgraph: the graph that ggml computes, once it is built.
    """

    def __init__(
        self,
        device: Device,
        *,
        outputs: Sequence[Node],
        effects: Sequence[Node],
        loss: Tensor | None,
        loss_grad: Tensor | None,
        gradients: Gradients,
        overwrite: bool,
        known: Mapping[int, tuple[Node, Node]],
    ):
        self.device = device
        self.outputs = {id(node) for node in outputs}
        self.loss = loss
        self.gradients = gradients
        self.overwrite = overwrite
        self.transient = {
            id(grad.node): (node, grad.node)
            for node, grad in gradients.values()
            if is_placeholder(grad.node)
        }
        self.headers: dict[int, Any] = {}
        # The tensor that a known one views may be known itself: its own numbers go before.
        for node, stored in known.values():
            self.headers[address(node.ptr.view_src)] = stored.ptr
        for node, stored in known.values():
            self.headers[address(node.ptr)] = stored.ptr
        seen = set(known)
        nodes = walk([*outputs, *([loss.node] if loss is not None else [])], seen)
        self.forward, bound = divide(with_updates(nodes, seen), self.transient)
        nodes = walk(effects, seen)
        divide(nodes, self.transient)
        self.updates = [*bound, *(node for node in nodes if id(node) not in self.transient)]
        self.updates_write = any(map(_writes, self.updates))
        self.forward_writes = any(map(_writes, self.forward))
        needed: set[int] = set()
        if loss is not None:
            needed = check_path(self.forward, loss.node, gradients.keys())
        self.custom = CustomBackwards(self.forward, needed)
        every = (*self.forward, *self.updates, *self.custom.nodes)
        self.stored = [node for node in every if node.buffer is not None]
        self.stored += [stored for _, stored in known.values()]
        self._in_place: set[int] = set()
        if overwrite:
            check_unread(gradients, [*self.forward, *self.custom.nodes], loss_grad)
        self.recorded: dict[int, Node] = {}
        self.order: list[Any] = []
        self.n_forward = 0
        self.loss_header: Any = None
        self.cleared: list[Any] = []
        self.fallbacks: dict[str, int] = {}
        self.cgraph: Any = None
        self._seed = loss_grad
        self._backward: Any = None

    def build(self, passes: Iterable[Pass]) -> None:
        """Copy the headers, add the backward, apply the passes and make the graph."""
        size = 2 * len(self.forward) + len(self.updates) + len(self.transient)
        size += _HEADERS_SPARE + self.custom.most_headers
        if self.device.rounds_operands:
            size += _ROUNDED_PER_OP * sum(n.ptr.op in _ROUNDING for n in self.forward)
        size += 0 if self.loss is None else backward_headers(self.forward)
        overhead = lib.ggml_graph_overhead_custom(size, False)
        if self.loss is not None:
            overhead += lib.ggml_graph_overhead_custom(size, True)
        self._arena = Arena(size, overhead)
        params = [node for node in self.forward if id(node) in self.gradients]
        try:
            for node in params:
                node.ptr.flags |= lib.GGML_TENSOR_FLAG_PARAM
            self.order = self.copy(self.forward)
            self.n_forward = len(self.order)
            if self.loss is not None:
                self._add_backward(self.loss, size)
            for rewrite in passes:
                rewrite(self)
            self.cgraph = self._graph(self.order, size, False)
        finally:
            for node in params:
                node.ptr.flags &= ~lib.GGML_TENSOR_FLAG_PARAM
        # What is written and not read is known to the graph as well.
        for total in self.totals() if self.overwrite else ():
            lib.ggml_build_forward_expand(self.cgraph, total)
        # Every node and leaf is in this graph's arena, or stored; ggml aborts when told less.
        made = lib.ggml_used_mem(self._arena.ctx) - overhead
        self.n_tensors = int(made) // int(lib.ggml_tensor_overhead()) + len(self.stored)
        self.n_tensors += len(self.gradients) + _HEADERS_SPARE
        # Without reuse, and with a gradient for each; f32 elements are the largest that ops make.
        nodes = (*self.forward, *self.custom.nodes)
        elements = sum(math.prod(n.shape) for n in nodes if n.buffer is None)
        self.most_bytes = 4 * elements * (1 if self.loss is None else _TENSORS_PER_GRADIENT)

    @property
    def ctx(self) -> Any:
        """The context of the graph's headers."""
        return self._arena.ctx

    def written(self) -> list[Buffer]:
        """Return the memory of the stored tensors that ops write in place."""
        if not self._in_place:
            return []
        places = {address(node.ptr): node.buffer for node in self.stored if node.buffer is not None}
        return list({id(places[at]): places[at] for at in self._in_place if at in places}.values())

    @property
    def memory(self) -> Any:
        """The box that keeps the graph and its headers allocated; see `untracked`."""
        return self._arena.memory

    @property
    def n_nodes(self) -> int:
        """The number of ops in the graph."""
        return int(lib.ggml_graph_n_nodes(self.cgraph))

    def totals(self) -> list[Any]:
        """Return the stored tensors that gradients are added into."""
        return [grad.ptr for _, grad in self.gradients.values() if grad.is_stored]

    def header(self, node: Node) -> Any:
        """Return the graph's header of a recorded node."""
        return self.headers[address(node.ptr)]

    def gradient(self, header: Any) -> Any:
        """Return the header of a result's gradient; NULL where ggml made none."""
        return lib.ggml_graph_get_grad(self._backward, header)

    def copy(self, nodes: Sequence[Node], places: Mapping[int, Any] | None = None) -> list[Any]:
        """Copy the recorded headers into this graph, so that a tensor can be part of several.

        Args:
            nodes: operands first.
            places: headers to overwrite, by the addresses of the recorded ones.
        """
        copies = []
        for node in nodes:
            place = (places or {}).get(address(node.ptr))
            ptr = node.ptr if node.buffer is not None else self._copy(node, place)
            if id(node) in self.outputs and node.buffer is None:
                lib.ggml_set_output(ptr)
            self.headers[address(node.ptr)] = ptr
            self.recorded[address(ptr)] = node
            copies.append(ptr)
        return copies

    def _copy(self, node: Node, place: Any) -> Any:
        ptr = node.ptr
        copy = place or lib.ggml_new_tensor(self.ctx, ptr.type, 4, ptr.ne)
        ffi.memmove(copy, ptr, ffi.sizeof("struct ggml_tensor"))
        self.headers[address(ptr)] = copy  # ggml_cast has itself as a source
        for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
            if source:
                copy.src[i] = self.headers[address(source)]
        if ptr.view_src != ffi.NULL:
            root = address(ptr.view_src)
            copy.view_src = self.headers[root]
            if ptr.op not in MOVES:
                self._in_place.add(root)
        return copy

    def _graph(self, order: Iterable[Any], size: int, gradients: bool) -> Any:
        graph = lib.ggml_new_graph_custom(self.ctx, size, gradients)
        for ptr in order:
            lib.ggml_build_forward_expand(graph, ptr)
        return graph

    def _add_backward(self, loss: Tensor, size: int) -> None:
        """Let ggml add the gradients; those of stored tensors are added to what is in them."""
        graph = self._backward = self._graph(self.order, size, True)
        n = self.n_forward = int(lib.ggml_graph_n_nodes(graph))
        self.loss_header = self.header(loss.node)
        lib.ggml_set_loss(self.loss_header)
        if self._seed is None:
            self._seed = full((), 1.0, device=self.device)
        accumulators = {address(self.loss_header): self._seed.ptr}
        for node, grad in self.gradients.values():
            if grad.is_stored:
                accumulators[address(node.ptr)] = grad.ptr
        # At a custom function's arguments ggml goes on with what stands for their gradients.
        accumulators |= self.custom.make_stand_ins(self.ctx, self.headers)
        table = ffi.new("struct ggml_tensor *[]", n)
        for i in range(n):
            at = address(lib.ggml_graph_node(graph, i))
            table[i] = accumulators.get(at, ffi.NULL)
        outs = self.custom.outs(self.headers)
        for ptr in outs:
            ptr.flags |= lib.GGML_TENSOR_FLAG_PARAM
        lib.ggml_build_backward_expand(self.ctx, graph, table)
        for ptr in outs:
            ptr.flags &= ~lib.GGML_TENSOR_FLAG_PARAM
        self.order = [
            lib.ggml_graph_node(graph, i) for i in range(int(lib.ggml_graph_n_nodes(graph)))
        ]


# What rewrites a plan: its order, the headers in it, or what is known of them.
Pass = Callable[[Plan], None]


def _writes(node: Node) -> bool:
    """Return whether an op writes into the memory of another tensor."""
    return bool(node.ptr.view_src != ffi.NULL and node.ptr.op not in MOVES)
