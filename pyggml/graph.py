# SPDX-License-Identifier: MIT
"""Graphs: recorded ops planned once, then computed as often as wanted in one call each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ._lib import ffi, lib
from .device import COMPUTE_LOCK, Device
from .device import device as find_device
from .errors import BackendError, DTypeError, GradientError, ShapeError
from .tensor import Arena, Node, Tensor, full, record, register, tensor, zeros_group

__all__ = ["Compiled", "Graph", "backward", "compile", "evaluate"]

# Ops whose gradient ggml_compute_backward builds; the rest would abort there.
_DIFFERENTIABLE = frozenset(
    "DUP ADD ADD1 ACC SUB MUL DIV SQR SQRT LOG SIN COS SUM SUM_ROWS MEAN REPEAT REPEAT_BACK NORM"
    " RMS_NORM MUL_MAT SCALE SET CPY CONT RESHAPE VIEW PERMUTE TRANSPOSE GET_ROWS DIAG_MASK_INF"
    " DIAG_MASK_ZERO SOFT_MAX ROPE IM2COL POOL_2D CROSS_ENTROPY_LOSS CROSS_ENTROPY_ROWS".split()
)
_DIFFERENTIABLE_UNARY = frozenset(
    "ABS SGN NEG STEP RELU SILU EXP EXPM1 SOFTPLUS GELU GELU_ERF".split()
)
_DIFFERENTIABLE_GLU = frozenset(["SWIGLU"])
_MOVES = (
    lib.GGML_OP_NONE,
    lib.GGML_OP_RESHAPE,
    lib.GGML_OP_VIEW,
    lib.GGML_OP_PERMUTE,
    lib.GGML_OP_TRANSPOSE,
)
# Headers that the gradient of one op may need, and those for outputs and accumulators.
_HEADERS_PER_GRADIENT = 16
_HEADERS_SPARE = 256


def _address(ptr: Any) -> int:
    return int(ffi.cast("uintptr_t", ptr))


def _op_name(ptr: Any) -> str:
    return ffi.string(lib.ggml_op_desc(ptr)).decode()  # type: ignore[no-any-return]


def _walk(roots: Iterable[Node], done: set[int]) -> list[Node]:
    """Nodes below `roots` that are not in `done`, sources first; without recursion."""
    order: list[Node] = []
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
            elif id(node) not in done:
                done.add(id(node))
                stack.append((node, True))
                stack.extend((s, False) for s in reversed(node.srcs) if id(s) not in done)
    return order


class Graph:
    """A recorded computation with its memory planned, ready to run many times.

    Inputs are stored tensors: overwrite them with `copy_` between runs. Parameters are stored
    tensors as well.

    Args:
        outputs: tensors to read after a run.
        effects: in-place ops (set_rows, cpy, opt_step_…) to carry out, in order, at the end.
        loss: scalar whose gradient is computed.
        grads: for each parameter the stored tensor into which its gradient is added.
        loss_grad: stored scalar that the backward starts from; None means 1.
        device: None takes the outputs' device.

    Attributes:
        memory_bytes: planned memory for everything that is not stored.
        n_nodes: ops in the graph.

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
        device: Device | str | None = None,
    ):
        roots = [*outputs, *([loss] if loss is not None else []), *effects]
        if not roots:
            raise ValueError("graph: needs at least one output or effect; got none")
        self.device = find_device(device) if device is not None else roots[0].device
        self._accumulate = _check_gradients(loss, grads or {}, loss_grad)
        # Non-contiguous results are read through an ordered copy.
        readable = {id(t.node): t if t.is_stored else _ordered(t) for t in outputs}
        self._readers: dict[int, tuple[Node, Tensor]] = {
            id(t.node): (t.node, readable[id(t.node)]) for t in outputs
        }
        seen: set[int] = set()
        heads = [t.node for t in readable.values()]
        forward = _walk([*heads, *([loss.node] if loss is not None else [])], seen)
        after = _walk([t.node for t in effects], seen)
        if loss is not None:
            _check_differentiable(forward, loss.node, {id(p.node) for p in grads or {}})
        self._leaves = [n for n in (*forward, *after) if n.buffer is not None]
        with COMPUTE_LOCK:
            self._build(forward, after, loss, loss_grad)
            self._plan()

    def _build(
        self, forward: list[Node], after: list[Node], loss: Tensor | None, seed: Tensor | None
    ) -> None:
        count = len(forward) + len(after)
        n = count + _HEADERS_SPARE + (_HEADERS_PER_GRADIENT * len(forward) if loss else 0)
        with_grads = loss is not None
        self._arena = Arena(n, lib.ggml_graph_overhead_custom(n, with_grads))
        self._cgraph = lib.ggml_new_graph_custom(self._arena.ctx, n, with_grads)
        self._clones: dict[int, Any] = {}
        params = [n for n in forward if id(n) in self._accumulate]
        for node in params:
            node.ptr.flags |= lib.GGML_TENSOR_FLAG_PARAM
        try:
            self._expand(forward)
            if loss is not None:
                self._expand_backward(loss, seed)
        finally:
            for node in params:
                node.ptr.flags &= ~lib.GGML_TENSOR_FLAG_PARAM
        self._expand(after)
        self._check_supported()

    def _expand(self, nodes: list[Node]) -> None:
        """Copy the recorded headers into this graph, so that a tensor can be part of several."""
        readable = {id(t.node) for _, t in self._readers.values()}
        for node in nodes:
            ptr = node.ptr if node.buffer is not None else self._clone(node)
            if id(node) in readable and node.buffer is None:
                lib.ggml_set_output(ptr)
            self._clones[_address(node.ptr)] = ptr
            lib.ggml_build_forward_expand(self._cgraph, ptr)

    def _clone(self, node: Node) -> Any:
        ptr = node.ptr
        clone = lib.ggml_new_tensor(self._arena.ctx, ptr.type, 4, ptr.ne)
        ffi.memmove(clone, ptr, ffi.sizeof("struct ggml_tensor"))
        self._clones[_address(ptr)] = clone  # ggml_cast has itself as a source
        for i in range(lib.GGML_MAX_SRC):
            if ptr.src[i] != ffi.NULL:
                clone.src[i] = self._clones[_address(ptr.src[i])]
        if ptr.view_src != ffi.NULL:
            clone.view_src = self._clones[_address(ptr.view_src)]
        return clone

    def _expand_backward(self, loss: Tensor, seed: Tensor | None) -> None:
        head = self._clones[_address(loss.ptr)]
        lib.ggml_set_loss(head)
        self._seed = seed if seed is not None else full((), 1.0, "f32", self.device)
        accumulators = {_address(head): self._seed.ptr}
        for node, grad in self._accumulate.values():
            accumulators[_address(node.ptr)] = grad.ptr
        n = lib.ggml_graph_n_nodes(self._cgraph)
        table = ffi.new("struct ggml_tensor *[]", n)
        for i in range(n):
            at = _address(lib.ggml_graph_node(self._cgraph, i))
            table[i] = accumulators.get(at, ffi.NULL)
        lib.ggml_build_backward_expand(self._arena.ctx, self._cgraph, table)

    def _check_supported(self) -> None:
        cpu = find_device("cpu")
        for i in range(lib.ggml_graph_n_nodes(self._cgraph)):
            node = lib.ggml_graph_node(self._cgraph, i)
            if node.op in _MOVES or self.device.supports(node) or cpu.supports(node):
                continue
            types = [
                ffi.string(lib.ggml_type_name(node.src[k].type)).decode()
                for k in range(lib.GGML_MAX_SRC)
                if node.src[k] != ffi.NULL
            ]
            raise BackendError(
                f"graph: {self.device.name} cannot compute {_op_name(node)} of {', '.join(types)};"
                " cast the operands to f32"
            )

    def _plan(self) -> None:
        self.n_nodes = int(lib.ggml_graph_n_nodes(self._cgraph))
        self.memory_bytes = 0
        self._sched: Any = None
        if self.n_nodes == 0:
            return
        backends = [self.device.backend]
        if self.device.kind != "cpu":
            backends.append(find_device("cpu").backend)  # takes the ops that the device lacks
        handles = ffi.new("ggml_backend_t[]", backends)
        size = lib.ggml_graph_size(self._cgraph)
        sched = lib.ggml_backend_sched_new(handles, ffi.NULL, len(backends), size, False, True)
        self._sched = ffi.gc(sched, lib.ggml_backend_sched_free)
        sizes = ffi.new("size_t[]", len(backends))
        if not lib.ggml_backend_sched_alloc_graph(self._sched, self._cgraph):
            lib.ggml_backend_sched_reset(self._sched)
            lib.ggml_backend_sched_reserve_size(self._sched, self._cgraph, sizes)
            raise BackendError(
                f"graph: {self.device.name} cannot allocate {sizes[0]:,} bytes for activations"
                f" ({self.device.memory_free:,} free); use a smaller batch or sequence"
            )
        self.memory_bytes = sum(
            int(lib.ggml_backend_sched_get_buffer_size(self._sched, b)) for b in backends
        )

    def run(self) -> None:
        """Compute everything once; other threads of Python go on meanwhile.

        Raises:
            BackendError: the device failed.
        """
        if self._sched is None:
            return
        with COMPUTE_LOCK:
            status = lib.ggml_backend_sched_graph_compute(self._sched, self._cgraph)
        if status != lib.GGML_STATUS_SUCCESS:
            reason = ffi.string(lib.ggml_status_to_string(status)).decode()
            raise BackendError(f"graph: {self.device.name} failed to compute: {reason}")

    def read(self, t: Tensor) -> np.ndarray:
        """Copy an output's numbers of the last run.

        Raises:
            KeyError: `t` is not an output of this graph.
        """
        if id(t.node) not in self._readers:
            raise KeyError("read: the tensor is not among the graph's outputs; name it there")
        source = self._readers[id(t.node)][1]
        if source.is_stored:
            return source.numpy()
        stored = tensor_like(source)
        with COMPUTE_LOCK:
            lib.ggml_backend_tensor_copy(self._clones[_address(source.ptr)], stored.ptr)
        return stored.numpy()

    def fetch(self, t: Tensor) -> Tensor:
        """Copy an output of the last run into a stored tensor on the same device.

        Raises:
            KeyError: `t` is not an output of this graph.
        """
        return tensor(self.read(t), t.dtype, t.device)


def tensor_like(t: Tensor) -> Tensor:
    """A stored tensor of the same shape, dtype and device."""
    return zeros_group([(t.shape, t.dtype)], t.device)[0]


def _ordered(t: Tensor) -> Tensor:
    """`t` as a tensor with memory of its own in the graph: views and permutations are copied."""
    if t.ptr.view_src == ffi.NULL:
        return t
    return record(lib.ggml_cont, [t], t.shape)


def _check_gradients(
    loss: Tensor | None, grads: Mapping[Tensor, Tensor], seed: Tensor | None
) -> dict[int, tuple[Node, Tensor]]:
    if loss is None:
        if grads:
            raise ValueError("graph: grads need a loss; pass loss=")
        return {}
    if loss.size != 1 or loss.dtype.name != "f32" or loss.is_stored:
        raise ShapeError(
            "backward: the loss must be a recorded f32 tensor of one element;"
            f" got {loss!r}; reduce it with .sum() or .mean()"
        )
    if not grads:
        raise GradientError("backward: no parameter given; set requires_grad=True on one")
    if seed is not None and (seed.size != 1 or not seed.is_stored or seed.dtype.name != "f32"):
        raise ShapeError(f"backward: loss_grad must be a stored f32 scalar; got {seed!r}")
    for param, grad in grads.items():
        if not param.is_stored or param.dtype.name != "f32":
            raise DTypeError(f"backward: parameters must be stored f32 tensors; got {param!r}")
        if not grad.is_stored or grad.dtype.name != "f32" or grad.shape != param.shape:
            raise ShapeError(
                f"backward: the gradient of {param!r} must be stored, f32 and of its shape;"
                f" got {grad!r}"
            )
    return {id(p.node): (p.node, g) for p, g in grads.items()}


def _differentiable(ptr: Any) -> bool:
    if ptr.op == lib.GGML_OP_UNARY:
        name = ffi.string(lib.ggml_unary_op_name(lib.ggml_get_unary_op(ptr))).decode()
        return name in _DIFFERENTIABLE_UNARY
    if ptr.op == lib.GGML_OP_GLU:
        return ffi.string(lib.ggml_glu_op_name(lib.ggml_get_glu_op(ptr))).decode() in (
            _DIFFERENTIABLE_GLU
        )
    return ffi.string(lib.ggml_op_name(ptr.op)).decode() in _DIFFERENTIABLE


def _check_differentiable(forward: list[Node], loss: Node, params: set[int]) -> None:
    """Refuse what ggml_build_backward_expand would abort on."""
    needed: set[int] = set()
    for node in forward:
        if id(node) in params or any(id(s) in needed for s in node.srcs):
            if node.ptr.type != lib.GGML_TYPE_I32:
                needed.add(id(node))
    if id(loss) not in needed:
        raise GradientError("backward: no parameter leads to the loss")
    for node in _walk([loss], set()):
        if id(node) not in needed or node.buffer is not None:
            continue
        if not _differentiable(node.ptr):
            raise GradientError(
                f"backward: {_op_name(node.ptr)} of shape {node.shape} has no gradient;"
                " detach its input, or compute the loss another way"
            )
        if node.ptr.type != lib.GGML_TYPE_F32:
            name = ffi.string(lib.ggml_type_name(node.ptr.type)).decode()
            raise GradientError(
                f"backward: gradients flow through f32 only; {_op_name(node.ptr)} makes {name}"
            )


def evaluate(t: Tensor) -> np.ndarray:
    """Compute a recorded tensor now."""
    graph = Graph([t])
    graph.run()
    return graph.read(t)


def backward(loss: Tensor) -> None:
    """Add d(loss)/d(p) into `p.grad` of each stored tensor p that requires it; see `Tensor`."""
    leaves = [n for n in _walk([loss.node], set()) if n.buffer is not None and n.requires_grad]
    grads = {}
    for node in leaves:
        param = Tensor(node)
        if param.grad is None:
            param.grad = tensor_like(param)
        grads[param] = param.grad
    graph = Graph([loss], loss=loss, grads=grads)
    graph.run()
    loss._value = graph.read(loss)


class Compiled:
    """A function recorded once for each shape of its inputs; see `compile`."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn
        self._plans: dict[Any, tuple[list[Tensor], Any, Graph]] = {}

    def __call__(self, *args: Any) -> Any:
        given = [a if isinstance(a, Tensor) else tensor(a) for a in args]
        key = tuple((t.shape, t.dtype, t.device.name, t.requires_grad) for t in given)
        if key not in self._plans:
            inputs = [tensor(t) for t in given]
            for own, t in zip(inputs, given, strict=True):
                own.requires_grad = t.requires_grad
            outputs = self._fn(*inputs)
            flat = [outputs] if isinstance(outputs, Tensor) else list(outputs)
            if not all(isinstance(t, Tensor) for t in flat):
                raise TypeError("compile: the function must return a Tensor or a list of them")
            self._plans[key] = inputs, outputs, Graph(flat)
        inputs, outputs, graph = self._plans[key]
        for own, t in zip(inputs, given, strict=True):
            own.copy_(t)
        graph.run()
        if isinstance(outputs, Tensor):
            return graph.fetch(outputs)
        return type(outputs)(graph.fetch(t) for t in outputs)


def compile(fn: Callable[..., Any]) -> Compiled:
    """Record a function once per shape of its inputs; later calls only copy and compute.

    Args:
        fn: takes tensors, returns a tensor or a list or tuple of them. What it reads besides its
            arguments (parameters) is read anew at each call; Python code in it runs only when
            recording.

    Returns:
        A callable that takes tensors or arrays and returns stored tensors.

    Example:
        >>> double = compile(lambda x: x * 2)
        >>> double([1.0, 2.0]).tolist()
        [2.0, 4.0]
    """
    return Compiled(fn)


register("evaluate", evaluate)
register("backward", backward)
