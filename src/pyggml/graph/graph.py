# SPDX-License-Identifier: MIT
"""Graphs: recorded ops planned once, then computed as often as wanted in one call each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backend.device import COMPUTE_LOCK, Device
from ..backend.device import device as find_device
from ..backend.headers import MOVES, address, memory_of, operands
from ..backend.library import ffi, lib, pass_interrupt
from ..backend.not_copied import NotCopied
from ..checks import flag, instance, items, mapping
from ..errors import BackendError, DTypeError, OutOfMemoryError, ShapeError
from ..tensors.create import tensor, zeros_group
from ..tensors.gradients import note_gradients
from ..tensors.live import before_write, release
from ..tensors.moves import has_moved, move_count
from ..tensors.node import Node
from ..tensors.record import record
from ..tensors.storage import allocate, read
from ..tensors.tensor import Tensor
from ..tensors.tracing import check_read, draw_of
from ..tensors.truth import as_mask_of, is_mask
from .backward_checks import check_request
from .memory_plan import Activations, Computation
from .observers import LossError, LossGuard, Observers, observers
from .passes import PASSES
from .plan import Plan
from .reentry import NoReentry
from .walk import placeholder

__all__ = ["Graph", "grad_of", "most_fallbacks", "tensor_like"]


# ggml's backends and planned memory serve one graph at a time.
_once = NoReentry("graph")
# What ggml takes for a scheduler of a small graph, as measured.
_SCHEDULER_BYTES = 2**21


class Graph(NotCopied):
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
        known: stored tensors to read in the place of recorded ones, which are not computed.

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
        >>> dw, loss = pg.zeros(2), (w * x).sum()
        >>> g = Graph([loss], loss=loss, grads={w: dw})
        >>> g.run()
        >>> g.read(loss).item(), dw.tolist()
        (11.0, [3.0, 4.0])
    """

    instead = "make another Graph of the same outputs"

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
        known: Mapping[Tensor, Tensor] | None = None,
    ):
        for name, given in (("outputs", outputs), ("effects", effects)):
            if not isinstance(given, (list, tuple)):
                raise TypeError(
                    f"graph: {name} must be a list of Tensors; got {type(given).__name__};"
                    f" pass {name}=[x]"
                )
            for each in given:
                instance("graph", f"each of {name}", each, Tensor)
        optional = (("loss", loss, Tensor), ("loss_grad", loss_grad, Tensor))
        for name, value, kind in (*optional, ("activations", activations, Activations)):
            if value is not None:
                instance("graph", name, value, kind)
        if grads is not None:
            mapping("graph", "grads", grads)
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
        # Non-contiguous results are read through an ordered copy.
        self._outputs = {t: _ordered(t).node for t in outputs}
        self._plan = Plan(
            self.device,
            outputs=list(self._outputs.values()),
            effects=[t.node for t in effects],
            loss=loss,
            loss_grad=loss_grad,
            gradients=check_request(loss, grads or {}, loss_grad),
            overwrite=flag("graph", "overwrite", overwrite),
            known=_known(known),
        )
        draws = [(node, draw_of(node)) for node in self._plan.stored]
        self._draws = [(Tensor(node), draw) for node, draw in draws if draw is not None]
        self._params = [id(param.node) for param in grads or {}]
        self._moves = -1  # after how many moves its tensors were looked through
        self._masks = list(map(is_mask, self._plan.stored))
        self._buffers = {node.buffer for node in self._plan.stored if node.buffer is not None}
        self._untouched = set(self._buffers)
        with COMPUTE_LOCK:
            self._plan.build(PASSES)
            sums = [grad for _, grad in self._plan.gradients.values() if grad.is_stored]
            self._changed = [*{*self._plan.written(), *(grad.buffer for grad in sums)}]
            self._allocate(activations)
        for t in roots:  # not before: without a graph their numbers are those of the call
            release(t)

    def _allocate(self, shared: Activations | None) -> None:
        """Plan the memory."""
        self.fallbacks = self._plan.fallbacks
        self.n_nodes = self._plan.n_nodes
        self.memory_bytes = 0
        self._has_run = False
        self._is_alone = shared is None
        self._activations = shared if shared is not None else Activations(self.device)
        if self.n_nodes == 0:
            return
        plan = self._plan
        self._computation = Computation(
            plan.cgraph, plan.ctx, self.n_nodes, plan.n_tensors, plan.most_bytes, plan.memory
        )
        own = shared is None or not shared.memory_bytes
        needed = 0 if own else self._activations.measure(self._computation)
        self._activations.take(self._computation)
        self.memory_bytes = self._activations.memory_bytes if own else needed

    @property
    def kept_bytes(self) -> int:
        """Bytes that keeping it takes: headers, and results in memory of its own."""
        headers = int(lib.ggml_get_mem_size(self._plan.ctx))
        return headers + (self.memory_bytes + _SCHEDULER_BYTES if self._is_alone else 0)

    @property
    def headers(self) -> list[Any]:
        """The `ggml_tensor *` of each op, in the order of computing."""
        return [lib.ggml_graph_node(self._plan.cgraph, i) for i in range(self.n_nodes)]

    def last_ops(self, tensors: Sequence[Tensor]) -> list[int]:
        """Return for each tensor the place in `headers` after which a run leaves it as it is.

        Args:
            tensors: stored ones, or what ops of this graph return.

        Returns:
            Places; -1 for a stored tensor that no op writes.
        """
        last: dict[int, int] = {}
        for i, ptr in enumerate(self.headers):
            last[address(ptr)] = i
            if ptr.view_src != ffi.NULL and ptr.op not in MOVES:
                last[address(ptr.view_src)] = i
        places = [address(t.ptr) for t in _tensors("last_ops", tensors)]
        own = self._plan.headers
        return [last.get(address(own[at]) if at in own else at, -1) for at in places]

    def readers(self, tensors: Sequence[Tensor]) -> list[list[int]]:
        """Return for each stored tensor the places in `headers` of the ops that read it.

        Args:
            tensors: stored ones; views of them count as well.
        """
        tensors = _tensors("readers", tensors)
        numbers = {memory_of(t.ptr): i for i, t in enumerate(tensors)}
        found: list[list[int]] = [[] for _ in tensors]
        for place, ptr in enumerate(self.headers):
            for memory in {memory_of(each) for each in operands(ptr)}:
                if memory in numbers:
                    found[numbers[memory]].append(place)
        return found

    @property
    def n_forward(self) -> int:
        """The number of ops, from the first, until the forward is done."""
        return self._plan.n_forward

    @property
    def is_current(self) -> bool:
        """True while no tensor that it reads or writes has moved, or become a mask or numbers."""
        moves = move_count()
        if moves != self._moves:
            stored = self._plan.stored
            if not any(map(has_moved, stored)) and list(map(is_mask, stored)) == self._masks:
                self._moves = moves
        return moves == self._moves

    def run(self) -> None:
        """Compute everything once; other Python threads run meanwhile.

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
                "graph: its tensors live on another device since it was made, or booleans were"
                " loaded in the place of numbers; move and load a model before anything is made for"
                " it: a graph, an optimizer or a trainer"
            )
        for drawn, draw in self._draws:
            drawn.copy_(draw())
        status, callback = self._compute()
        pass_interrupt()
        error = None if callback is None else callback.error
        if error is not None:
            raise error
        if status != lib.GGML_STATUS_SUCCESS:
            reason = ffi.string(lib.ggml_status_to_string(status)).decode()
            kind, advice = BackendError, ""
            if status == lib.GGML_STATUS_ALLOC_FAILED:
                kind = OutOfMemoryError
                advice = "; use a smaller batch or sequence, or checkpointing, or free memory"
            elif status == lib.GGML_STATUS_FAILED and self.device.kind == "gpu":
                advice = "; start a new process and resume from the last checkpoint"
            raise kind(f"graph: {self.device.name} failed to compute: {reason}{advice}")
        note_gradients(self._params)
        for buffer in self._untouched:
            buffer.touch()
        self._untouched.clear()

    def _compute(self) -> tuple[int, Observers | None]:
        """Compute everything once; return ggml's status, and what saw the ops."""
        with COMPUTE_LOCK:
            for buffer in self._buffers:
                buffer.settle()
            before_write(self._changed)
            _once.enter()
            try:
                sched = self._activations.take(self._computation)
                self._has_run = True
                for ptr in self._plan.cleared:
                    lib.ggml_backend_tensor_memset(ptr, 0, 0, lib.ggml_nbytes(ptr))
                callback = self._observers(sched)
                # Always set: Ctrl-C may have kept an earlier run from taking its own away.
                if callback is None:
                    lib.ggml_backend_sched_set_eval_callback(sched, ffi.NULL, ffi.NULL)
                else:
                    lib.ggml_backend_sched_set_eval_callback(
                        sched, lib.pyggml_watch, callback.handle
                    )
                before = [buffer.version for buffer in self._changed]
                for buffer in self._changed:
                    buffer.write()
                status = lib.ggml_backend_sched_graph_compute(sched, self._plan.cgraph)
                if status == lib.GGML_STATUS_SUCCESS and self.device.has_failed():
                    status = lib.GGML_STATUS_FAILED
                if callback is not None:
                    lib.ggml_backend_sched_set_eval_callback(sched, ffi.NULL, ffi.NULL)
                    if self._wrote_nothing(callback.error):
                        for buffer, version in zip(self._changed, before, strict=True):
                            buffer.version = version
                return status, callback
            finally:
                _once.leave()

    def _wrote_nothing(self, error: Exception | None) -> bool:
        """Return whether a run that an observer ended has written into no stored tensor."""
        is_early = isinstance(error, LossError) and not error.spoiled
        return is_early and not self._plan.forward_writes

    def _observers(self, sched: Any) -> Observers | None:
        """Return what sees the ops of a run; None if nothing does, which is faster."""
        each = observers(self._plan.recorded)
        if self._plan.transient and self._plan.updates_write:
            alone = int(lib.ggml_backend_sched_get_n_splits(sched)) == 1
            each.append(LossGuard(self._plan.loss_header, alone))
        return Observers(each) if each else None

    def read(self, t: Tensor) -> np.ndarray:
        """Copy an output's numbers of the last run.

        Raises:
            KeyError: `t` is not an output of this graph.
            BackendError: the graph has not run yet, or another one of its activations has since.
        """
        source = self._source(t)
        if source.buffer is not None:
            return Tensor(source).numpy()
        return read(source, self._header(source))

    def fetch(self, t: Tensor) -> Tensor:
        """Copy an output of the last run into a stored tensor on the same device.

        Raises:
            KeyError: `t` is not an output of this graph.
            BackendError: as `read`.
        """
        source = self._source(t)
        if source.buffer is not None:
            made = tensor(Tensor(source).numpy(), t.dtype, t.device).node
        else:
            header = self._header(source)
            (made,) = allocate([(source.shape, t.dtype)], source.device)
            lib.ggml_backend_tensor_copy(header, made.ptr)
        return Tensor(as_mask_of(t.node, made))

    def _source(self, t: Tensor) -> Node:
        """Return the node that an output is read from."""
        source = self._outputs.get(instance("Graph.read", "t", t, Tensor))
        if source is None:
            raise KeyError("read: the tensor is not among the graph's outputs; name it there")
        return source

    def _header(self, source: Node) -> Any:
        """Return the header of an output whose numbers are there."""
        check_read(source)
        if not self._has_run:
            raise BackendError("read: the graph has not run yet; call run() first")
        if not self._activations.is_held_by(self._computation):
            raise BackendError(
                "read: another graph of the same activations has run since; read before that, or"
                " run again"
            )
        return self._plan.headers[address(source.ptr)]


def _known(given: Mapping[Tensor, Tensor] | None) -> dict[int, tuple[Node, Node]]:
    """Return recorded nodes and the stored ones in their places, by the ids of the former."""
    found: dict[int, tuple[Node, Node]] = {}
    if given is None:
        return found
    mapping("graph", "known", given)
    for t, value in given.items():
        for each in (t, value):
            instance("graph", "each of known", each, Tensor)
        if not value.is_stored or value.shape != t.shape or value.dtype != t.dtype:
            raise ShapeError(
                f"graph: what is known must be stored, of the tensor's shape and dtype, {t.shape}"
                f" and {t.dtype.name}; got {value!r:.60}"
            )
        found[id(t.node)] = t.node, value.node
    return found


def _tensors(method: str, tensors: Any) -> list[Tensor]:
    """Return the tensors that a method of graphs was given."""
    who = f"Graph.{method}"
    return [instance(who, "a tensor", t, Tensor) for t in items(who, "tensors", tensors)]


def most_fallbacks(graphs: Iterable[Graph]) -> dict[str, int]:
    """Return the ops that the CPU computes for the device, over several graphs.

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
    """Make a stored tensor of zeros of the same shape, dtype and device."""
    return zeros_group([(t.shape, t.dtype)], t.device)[0]


def grad_of(param: Tensor) -> Tensor:
    """Return the gradient of a parameter that exists only while a graph runs, and is not stored.

    Args:
        param: stored f32 tensor.

    Returns:
        What ops may use, in the outputs and effects of a graph that has it among its `grads`.

    Raises:
        DTypeError: param is not a stored f32 tensor.

    Example:
        >>> w, hyper = pg.tensor([1.0]), pg.tensor([0.5, 0.0])
        >>> loss, dw = (w * 2.0).sum(), grad_of(w)
        >>> step = pg.ops.opt_step_sgd(w, dw, hyper)
        >>> Graph([loss], loss=loss, grads={w: dw}, effects=[step]).run()
        >>> w.tolist()
        [0.0]
    """
    if not isinstance(param, Tensor) or not param.is_stored or param.dtype.name != "f32":
        raise DTypeError(f"grad_of: param must be a stored f32 tensor; got {param!r}")
    return placeholder(param)


def _ordered(t: Tensor) -> Tensor:
    """Return `t` with memory of its own: views and permutations are copied."""
    if t.is_stored or t.ptr.view_src == ffi.NULL:
        return t
    return record(lib.ggml_cont, [t], t.shape)
