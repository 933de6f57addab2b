# SPDX-License-Identifier: MIT
"""Graphs: recorded ops planned once, then computed as often as wanted in one call each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backend.device import COMPUTE_LOCK, Device, get_threads
from ..backend.device import device as find_device
from ..backend.headers import MOVES
from ..backend.headers import address as _address
from ..backend.library import ffi, lib, pass_interrupt
from ..backend.memory import has_room
from ..debug.anomaly import LossGuard, Watcher, is_watching
from ..debug.profiler import Recorder, active_profile
from ..errors import BackendError, DTypeError
from ..tensors.node import Arena, Moves, Node
from ..tensors.storage import read
from ..tensors.tensor import Tensor, full, record, tensor, zeros_group
from ..tensors.tracing import check_read
from .backward_checks import (
    backward_headers,
    check_path,
    check_request,
    check_unread,
    divide,
    is_passing,
    walk,
)
from .custom_function import Pulled, passing
from .memory_plan import Activations, Computation
from .passes.accumulate import fold_sums, write_first
from .passes.fallback import find_fallbacks
from .passes.place_updates import weave
from .passes.recompute import check_repeatable, rewrite

__all__ = ["Graph", "grad_of", "most_fallbacks", "tensor_like"]

# Tensors that the gradient of one op may make at most, but for a few ops with small results.
_TENSORS_PER_GRADIENT = 16
# Headers for outputs and accumulators.
_HEADERS_SPARE = 256


class Graph:
    """A recorded computation with its memory planned, ready to run many times.

    Inputs are stored tensors: overwrite them with `copy_` between runs. Parameters are stored
    tensors as well.

    Args:
        outputs: tensors to read after a run.
        effects: in-place ops (set_rows, cpy, opt_step_…) to carry out, in order, at the end.
            With gradients of `grad_of` each is carried out as soon as the results stay the same.
        loss: scalar whose gradient is computed.
        grads: for each parameter the stored tensor into which its gradient is added, or what
            `grad_of` made for it, which effects and outputs may use.
        loss_grad: stored scalar that the backward starts from; None means 1.
        overwrite: write gradients over what is in the tensors of `grads`, instead of adding.
        device: None takes the outputs' device.
        activations: memory to share with other graphs of the CPU; None takes memory of its own.

    Attributes:
        memory_bytes: planned memory for everything that is not stored.
        n_nodes: ops in the graph.
        fallbacks: ops that the CPU computes for the device, and how many of each.

    Raises:
        GradientError: an op between a parameter and the loss has no gradient, or no parameter
            leads to the loss.
        BackendError: the device lacks an op or the memory.

    Example:
        >>> w, x = pg.tensor([1.0, 2.0]), pg.tensor([3.0, 4.0])
        >>> dw, loss = pg.zeros((2,)), (w * x).sum()
        >>> g = Graph([loss], loss=loss, grads={w: dw})
        >>> g.run()
        >>> g.read(loss).item(), dw.tolist()
        (11.0, [3.0, 4.0])
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        *,
        effects: Sequence[Tensor] = (),
        loss: Tensor | None = None,
        grads: Mapping[Tensor, Tensor] | None = None,
        loss_grad: Tensor | None = None,
        overwrite: bool = False,
        device: Device | str | None = None,
        activations: Activations | None = None,
    ):
        for name, given in (("outputs", outputs), ("effects", effects)):
            if not isinstance(given, (list, tuple)):
                raise TypeError(
                    f"graph: {name} must be a list of Tensors; got {type(given).__name__};"
                    f" pass {name}=[x]"
                )
        if grads is not None and not isinstance(grads, Mapping):
            raise TypeError(
                "graph: grads must be a dictionary {parameter: gradient};"
                f" got {type(grads).__name__}"
            )
        if loss_grad is not None and not isinstance(loss_grad, Tensor):
            raise TypeError(
                f"graph: loss_grad must be a stored f32 scalar; got {type(loss_grad).__name__};"
                " use pg.tensor(1.0)"
            )
        for each in (*outputs, *effects, *([loss] if loss is not None else [])):
            if not isinstance(each, Tensor):
                raise TypeError(
                    "graph: outputs, effects and the loss must be Tensors;"
                    f" got {type(each).__name__}"
                )
        if activations is not None and not isinstance(activations, Activations):
            raise TypeError(
                f"graph: activations must be an Activations; got {type(activations).__name__}"
            )
        roots = [*outputs, *([loss] if loss is not None else []), *effects]
        if not roots:
            raise ValueError("graph: needs at least one output or effect; got none")
        self.device = find_device(device) if device is not None else roots[0].device
        if activations is not None and (
            activations.device is not self.device or self.device.kind != "cpu"
        ):
            raise BackendError(
                "graph: activations are shared by graphs of the CPU; got a graph of "
                f"{self.device.name} and activations of {activations.device.name}"
            )
        self._accumulate = check_request(loss, grads or {}, loss_grad)
        if not isinstance(overwrite, bool):
            raise TypeError(f"graph: overwrite must be True or False; got {overwrite!r}")
        self._overwrite = overwrite
        self._cleared: list[Any] = []
        # Non-contiguous results are read through an ordered copy.
        self._sources = {t: _ordered(t).node for t in outputs}
        self._passing = {
            id(grad.node): (node, grad.node)
            for node, grad in self._accumulate.values()
            if is_passing(grad.node)
        }
        seen: set[int] = set()
        heads = list(self._sources.values())
        nodes = walk([*heads, *([loss.node] if loss is not None else [])], seen)
        nodes = _with_effects(nodes, seen)
        forward, late = divide(nodes, self._passing)
        nodes = walk([t.node for t in effects], seen)
        divide(nodes, self._passing)
        after = [*late, *(node for node in nodes if id(node) not in self._passing)]
        needed: set[int] = set()
        if loss is not None:
            needed = check_path(forward, loss.node, {id(p.node) for p in grads or {}})
        self._pulled = Pulled(forward, needed)
        self._stored = [n for n in (*forward, *after, *self._pulled.nodes) if n.buffer is not None]
        self._moves = -1  # after how many moves its tensors were looked through
        self._untouched = {node.buffer for node in self._stored if node.buffer is not None}
        if overwrite:
            check_unread(self._accumulate, [*forward, *self._pulled.nodes], loss_grad)
        with COMPUTE_LOCK:
            self._build(forward, after, loss, loss_grad)
            self._plan(activations)

    def _build(
        self, forward: list[Node], after: list[Node], loss: Tensor | None, seed: Tensor | None
    ) -> None:
        count = len(forward) + len(after)
        n = count + _HEADERS_SPARE + (0 if loss is None else backward_headers(forward))
        with_grads = loss is not None
        forgotten = self._forgotten(forward, loss)
        custom = self._pulled.nodes
        n += len(forgotten) + len(self._passing) + self._pulled.most_headers
        overhead = lib.ggml_graph_overhead_custom(n, with_grads)
        late = [node for node in forward if node.late] if loss is not None else []
        if with_grads:
            overhead += lib.ggml_graph_overhead_custom(n, False)
        self._arena = Arena(n, overhead)
        self._cgraph = lib.ggml_new_graph_custom(self._arena.ctx, n, with_grads)
        self._clones: dict[int, Any] = {}
        self._recorded: dict[int, Node] = {}
        params = [n for n in forward if id(n) in self._accumulate]
        for node in params:
            node.ptr.flags |= lib.GGML_TENSOR_FLAG_PARAM
        try:
            self._expand(forward)
            if loss is not None:
                n_forward = self._count()
                self._expand_backward(loss, seed)
                self._reorder(forgotten, late, after, n, n_forward)
        finally:
            for node in params:
                node.ptr.flags &= ~lib.GGML_TENSOR_FLAG_PARAM
        if not self._passing:
            self._expand(after)
        order = (lib.ggml_graph_node(self._cgraph, i) for i in range(self._count()))
        self.fallbacks = find_fallbacks(order, self.device)
        # Every node and leaf is in this graph's arena, or stored; ggml aborts when told less.
        made = lib.ggml_used_mem(self._arena.ctx) - overhead
        # Without reuse, and with a gradient for each; f32 elements are the largest that ops make.
        recorded = (math.prod(n.shape) for n in (*forward, *custom) if n.buffer is None)
        self._most_bytes = 4 * sum(recorded) * (1 if loss is None else _TENSORS_PER_GRADIENT)
        self._n_tensors = int(made) // int(lib.ggml_tensor_overhead()) + len(self._stored)
        self._n_tensors += len(self._accumulate) + _HEADERS_SPARE

    def _count(self) -> int:
        return int(lib.ggml_graph_n_nodes(self._cgraph))

    def _expand(self, nodes: list[Node]) -> None:
        for ptr in self._copy(nodes):
            lib.ggml_build_forward_expand(self._cgraph, ptr)

    def _copy(self, nodes: list[Node], into: Mapping[int, Any] | None = None) -> list[Any]:
        """Copy the recorded headers into this graph, so that a tensor can be part of several.

        Some may have their places already, by their addresses.
        """
        readable = {id(node) for node in self._sources.values()}
        copies = []
        for node in nodes:
            place = (into or {}).get(_address(node.ptr))
            ptr = node.ptr if node.buffer is not None else self._clone(node, place)
            if id(node) in readable and node.buffer is None:
                lib.ggml_set_output(ptr)
            self._clones[_address(node.ptr)] = ptr
            self._recorded[_address(ptr)] = node
            copies.append(ptr)
        return copies

    def _clone(self, node: Node, into: Any = None) -> Any:
        ptr = node.ptr
        clone = into or lib.ggml_new_tensor(self._arena.ctx, ptr.type, 4, ptr.ne)
        ffi.memmove(clone, ptr, ffi.sizeof("struct ggml_tensor"))
        self._clones[_address(ptr)] = clone  # ggml_cast has itself as a source
        for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
            if source:
                clone.src[i] = self._clones[_address(source)]
        if ptr.view_src != ffi.NULL:
            clone.view_src = self._clones[_address(ptr.view_src)]
        return clone

    def _expand_backward(self, loss: Tensor, seed: Tensor | None) -> None:
        head = self._clones[_address(loss.ptr)]
        lib.ggml_set_loss(head)
        self._loss = head
        self._seed = seed if seed is not None else full((), 1.0, device=self.device)
        accumulators = {_address(head): self._seed.ptr}
        for node, grad in self._accumulate.values():
            if grad.is_stored:
                accumulators[_address(node.ptr)] = grad.ptr
        # At a custom function's arguments ggml goes on with what stands for their gradients.
        accumulators |= self._pulled.stand_ins(self._arena.ctx, self._clones)
        n = self._count()
        table = ffi.new("struct ggml_tensor *[]", n)
        for i in range(n):
            at = _address(lib.ggml_graph_node(self._cgraph, i))
            table[i] = accumulators.get(at, ffi.NULL)
        outs = self._pulled.outs(self._clones)
        for ptr in outs:
            ptr.flags |= lib.GGML_TENSOR_FLAG_PARAM
        lib.ggml_build_backward_expand(self._arena.ctx, self._cgraph, table)
        for ptr in outs:
            ptr.flags &= ~lib.GGML_TENSOR_FLAG_PARAM

    def _forgotten(self, forward: list[Node], loss: Tensor | None) -> list[Node]:
        """What the backward computes again: recorded without keeping, and read by nobody else."""
        if loss is None:
            return []
        kept = {id(node) for node in self._sources.values()} | {id(loss.node)}
        found: dict[int, Node] = {}
        for node in forward:
            if node.buffer is not None or id(node) in kept:
                continue
            # A view that is kept would keep what it is a view of.
            views = node.ptr.op in MOVES and any(id(source) in found for source in node.srcs)
            if views or not node.keep:
                found[id(node)] = node
        check_repeatable(found.values())
        return list(found.values())

    def _reorder(
        self,
        forgotten: list[Node],
        late: list[Node],
        after: list[Node],
        size: int,
        n_forward: int,
    ) -> None:
        """Compute again what was forgotten, later what was postponed; fold sums; place effects.

        Effects follow as soon as their gradients are there, but not before the loss.
        """
        order = [lib.ggml_graph_node(self._cgraph, i) for i in range(self._count())]
        if len(self._pulled):
            order = self._pulled.splice(
                order, self._arena.ctx, self._cgraph, self._clones, self._copy
            )
        if forgotten or late:
            at = {_address(self._clones[_address(node.ptr)]): node for node in forgotten}
            waiting = {_address(self._clones[_address(node.ptr)]) for node in late}
            order, copies, n_forward = rewrite(
                order, self._arena.ctx, n_forward, at.keys(), waiting
            )
            for address, copy in copies.items():
                self._recorded[_address(copy)] = at[address]
        order = fold_sums(order, self.device.supports)
        if self._overwrite:
            totals = [grad.ptr for _, grad in self._accumulate.values() if grad.is_stored]
            order, self._cleared = write_first(order, totals, self.device.computes_into)
        if self._passing:
            made = self._gradients(after)
            order = weave(order, [*made, *self._copy(after)], n_forward - 1)
        self._cgraph = lib.ggml_new_graph_custom(self._arena.ctx, size, False)
        for ptr in order:
            lib.ggml_build_forward_expand(self._cgraph, ptr)
        if self._overwrite:  # what is written and not read is known to the graph as well
            for ptr in totals:
                lib.ggml_build_forward_expand(self._cgraph, ptr)

    def _gradients(self, after: list[Node]) -> list[Any]:
        """Let the backward's results stand for the passing gradients; returns what that adds."""
        read = {id(node) for node in self._sources.values()}
        viewed = {_address(node.ptr.view_src) for node in after}
        added = []
        for param, grad in self._passing.values():
            ptr = lib.ggml_graph_get_grad(self._cgraph, param.ptr)
            # ggml keeps no view of an output, and knows no views of views.
            own = id(grad) in read or _address(grad.ptr) in viewed
            if ptr == ffi.NULL:  # the loss does not depend on it
                ptr = lib.ggml_fill(self._arena.ctx, param.ptr, 0.0)
                added.append(ptr)
            elif own or not lib.ggml_is_contiguous(ptr):
                ptr = lib.ggml_cont(self._arena.ctx, ptr)
                added.append(ptr)
            if id(grad) in read:
                lib.ggml_set_output(ptr)
            self._clones[_address(grad.ptr)] = ptr
        return added

    def _plan(self, shared: Activations | None) -> None:
        self.n_nodes = self._count()
        self.memory_bytes = 0
        self._has_run = False
        self._activations = shared if shared is not None else Activations(self.device)
        if self.n_nodes == 0:
            return
        self._computation = Computation(
            self._cgraph, self._arena.ctx, self.n_nodes, self._n_tensors, self._most_bytes
        )
        own = shared is None or not shared.memory_bytes
        needed = 0 if own else self._activations.measure(self._computation)
        self._activations.take(self._computation)
        self.memory_bytes = self._activations.memory_bytes if own else needed
        # ggml's CPU backend takes this when it first computes, and aborts where it cannot.
        self._work_bytes = 0
        if self.device.kind == "cpu":
            plan = lib.ggml_graph_plan(self._cgraph, get_threads(), ffi.NULL)
            self._work_bytes = int(plan.work_size)

    @property
    def is_current(self) -> bool:
        """Whether every tensor that it reads or writes lives where it did when this was made."""
        moves = Moves.count
        if moves != self._moves and not any(node.moved for node in self._stored):
            self._moves = moves
        return moves == self._moves

    def run(self) -> None:
        """Compute everything once; other threads of Python go on meanwhile.

        Raises:
            AnomalyError: an op made a NaN, and `detect_anomaly` is on.
            FloatingPointError: the graph has gradients of `grad_of`, and its loss is not finite;
                it stopped there, before any effect.
            BackendError: the device failed, or a tensor of the graph lives on another one since
                the graph was made.
            KeyboardInterrupt: Ctrl-C; under `detect_anomaly`, `profile` and with gradients of
                `grad_of` it ends the graph between two ops, else after the last one.
        """
        if self.n_nodes == 0:
            return
        self.device.check()
        if not self.is_current:
            raise BackendError(
                "graph: its tensors live on another device since it was made; move a model before"
                " anything is made for it: a graph, an optimizer or a trainer"
            )
        if self._work_bytes and not has_room(self._work_bytes):
            raise BackendError(
                f"graph: {self._work_bytes:,} bytes to work in are more than is free;"
                " use a smaller batch or sequence, or free memory"
            )
        with COMPUTE_LOCK:
            sched = self._activations.take(self._computation)
            self._has_run = True
            for ptr in self._cleared:
                lib.ggml_backend_tensor_memset(ptr, 0, 0, lib.ggml_nbytes(ptr))
            watcher = self._watcher(sched)
            # Always set: Ctrl-C may have kept an earlier run from taking its own away.
            if watcher is None:
                lib.ggml_backend_sched_set_eval_callback(sched, ffi.NULL, ffi.NULL)
            else:
                lib.ggml_backend_sched_set_eval_callback(sched, lib.pyggml_watch, watcher.handle)
            status = lib.ggml_backend_sched_graph_compute(sched, self._cgraph)
            if status == lib.GGML_STATUS_SUCCESS and self.device.has_failed():
                status = lib.GGML_STATUS_FAILED
            if watcher is not None:
                lib.ggml_backend_sched_set_eval_callback(sched, ffi.NULL, ffi.NULL)
        pass_interrupt()
        if watcher is not None and watcher.error is not None:
            raise watcher.error
        if status != lib.GGML_STATUS_SUCCESS:
            reason = ffi.string(lib.ggml_status_to_string(status)).decode()
            advice = ""
            if status == lib.GGML_STATUS_ALLOC_FAILED:
                advice = "; use a smaller batch or sequence, or checkpointing, or free memory"
            elif status == lib.GGML_STATUS_FAILED and self.device.kind == "gpu":
                advice = "; start a new process and resume from the last checkpoint"
            raise BackendError(f"graph: {self.device.name} failed to compute: {reason}{advice}")
        for buffer in self._untouched:
            buffer.touch()
        self._untouched.clear()

    def _watcher(self, sched: Any) -> Watcher | Recorder | LossGuard | None:
        profile = active_profile()
        watcher: Watcher | Recorder | None = None
        if is_watching():
            watcher = Watcher(self._recorded)
        elif profile is not None:
            watcher = Recorder(profile, self._recorded)
        if not self._passing:
            return watcher
        alone = int(lib.ggml_backend_sched_get_n_splits(sched)) == 1
        return LossGuard(self._loss, alone, watcher)

    def read(self, t: Tensor) -> np.ndarray:
        """Copy an output's numbers of the last run.

        Raises:
            KeyError: `t` is not an output of this graph.
            BackendError: the graph has not run yet, or another one of its activations has since.
        """
        source = self._sources.get(t)
        if source is None:
            raise KeyError("read: the tensor is not among the graph's outputs; name it there")
        if source.buffer is not None:
            return Tensor(source).numpy()
        check_read(source)
        if not self._has_run:
            raise BackendError("read: the graph has not run yet; call run() first")
        if not self._activations.is_held_by(self._computation):
            raise BackendError(
                "read: another graph of the same activations has run since; read before that, or"
                " run again"
            )
        return read(source, self._clones[_address(source.ptr)])

    def fetch(self, t: Tensor) -> Tensor:
        """Copy an output of the last run into a stored tensor on the same device.

        Raises:
            KeyError: `t` is not an output of this graph.
        """
        return tensor(self.read(t), t.dtype, t.device)


def _with_effects(nodes: list[Node], seen: set[int]) -> list[Node]:
    """Nodes and, right after each, the in-place ops that belong to it; see `effects.on_compute`."""
    if not any(node.effects for node in nodes):
        return nodes
    order: list[Node] = []
    for node in nodes:
        order.append(node)
        for effect in node.effects:
            order += _with_effects(walk([effect], seen), seen)
    return order


def most_fallbacks(graphs: Iterable[Graph]) -> dict[str, int]:
    """What the CPU computes for the device of several graphs.

    Args:
        graphs: any number of them.

    Returns:
        Names of ops and how many of each the graph has that has the most, as `Graph.fallbacks`.
    """
    found: Counter[str] = Counter()
    for graph in graphs:
        found |= Counter(graph.fallbacks)
    return dict(found.most_common())


def tensor_like(t: Tensor) -> Tensor:
    """A stored tensor of the same shape, dtype and device."""
    return zeros_group([(t.shape, t.dtype)], t.device)[0]


def grad_of(param: Tensor) -> Tensor:
    """The gradient of a parameter without memory that lasts: it exists while a graph runs.

    Args:
        param: stored f32 tensor.

    Returns:
        What ops may use, in the outputs and effects of a graph that has it among its `grads`.

    Raises:
        DTypeError: param is not a stored f32 tensor.

    Example:
        >>> w, hyper = pg.tensor([1.0]), pg.tensor([0.5, 0.0])
        >>> loss, dw = (w * 2.0).sum(), grad_of(w)
        >>> step = ops.opt_step_sgd(w, dw, hyper)
        >>> Graph([loss], loss=loss, grads={w: dw}, effects=[step]).run()
        >>> w.tolist()
        [0.0]
    """
    if not isinstance(param, Tensor) or not param.is_stored or param.dtype.name != "f32":
        raise DTypeError(f"grad_of: param must be a stored f32 tensor; got {param!r}")
    return passing(param)


def _ordered(t: Tensor) -> Tensor:
    """`t` as a tensor with memory of its own: views and permutations are copied."""
    if t.is_stored or t.ptr.view_src == ffi.NULL:
        return t
    return record(lib.ggml_cont, [t], t.shape)
