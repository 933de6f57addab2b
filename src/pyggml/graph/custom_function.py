# SPDX-License-Identifier: MIT
"""Functions with a gradient of one's own: recorded ops forward, recorded ops backward."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..backend.headers import address, sources
from ..backend.library import ffi, lib
from ..errors import DTypeError, GradientError, ShapeError
from ..tensors.node import Node, recorder
from ..tensors.storage import ne_of
from ..tensors.tensor import Tensor, record, without_gradient, zeros
from ..tensors.tracing import Recording
from .backward_checks import walk

__all__ = ["Pullback", "Pulled", "custom_function", "passing"]

_WHO = "custom_function"


class Pullback:
    """The backward of one call, recorded: from the gradients of its results to those of arguments.

    ggml's backward ends at the results, which name no operand, and begins anew at the gates:
    views of the arguments whose gradients are given to it. `Graph` puts what is recorded here
    in between.

    Attributes:
        outs: the results.
        seeds: stand for their gradients, one each.
        gates: views of the arguments that take a gradient; the results come after them.
        results: the gradients of these, one each.
    """

    __slots__ = ("gates", "outs", "results", "seeds")

    def __init__(self, seeds: Sequence[Node], gates: Sequence[Node], results: Sequence[Node]):
        self.outs: list[Node] = []
        self.seeds = list(seeds)
        self.gates = list(gates)
        self.results = list(results)

    def nodes(self) -> list[Node]:
        """What the backward may compute, its operands first."""
        return walk(self.results, {id(seed) for seed in self.seeds})


def passing(like: Tensor) -> Tensor:
    """A header of a tensor's shape without memory; it stands for what only a graph computes."""
    arena = recorder.room()
    ne = ffi.new("int64_t[]", ne_of(like.shape))
    ptr = lib.ggml_new_tensor(arena.ctx, lib.GGML_TYPE_F32, len(ne), ne)
    return Tensor(Node(ptr, arena, like.device, like.shape))


def custom_function(
    forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Make a differentiable function of a forward and a backward of one's own.

    Both are recorded when the function is called, and become ops of the graph: when that runs, no
    Python does. What the forward computes, the backward may use without computing it again, if the
    forward returns it: as one of several results.

    Args:
        forward: (arguments) -> a Tensor, or a tuple of them. Tensors among the arguments come
            detached.
        backward: (gradient, result, arguments) -> the gradient of each argument, as a Tensor of
            its shape, or None where there is none, as for what is not an f32 tensor. A function of
            one argument may return it alone. For several results, gradient and result are tuples.

    Returns:
        A function of tensors (and of anything else that `forward` takes).

    Raises:
        TypeError: forward or backward is no function, or returns what it should not.
        ShapeError: the backward's gradient has another shape than the argument.
        GradientError: the forward uses a tensor that requires a gradient and is not an argument.

    Example:
        >>> reverse = custom_function(lambda x: x, lambda grad, y, x: -grad)
        >>> w = tensor([1.0, 2.0], requires_grad=True)
        >>> reverse(w).sum().backward()
        >>> w.grad.tolist()
        [-1.0, -1.0]
    """
    for name, fn in (("forward", forward), ("backward", backward)):
        if not callable(fn):
            raise TypeError(f"{_WHO}: {name} must be a function; got {type(fn).__name__}")

    def call(*args: Any) -> Any:
        return _call(forward, backward, args)

    return call


def _call(forward: Callable[..., Any], backward: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Record one call of a custom function, with its backward."""
    if not any(isinstance(a, Tensor) for a in args):
        raise TypeError(f"{_WHO}: at least one argument must be a Tensor; got {_types(args)}")
    inner = [without_gradient(a) if _is_float(a) else a for a in args]
    made = forward(*inner)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    if not results or not all(isinstance(y, Tensor) for y in results):
        raise TypeError(
            f"{_WHO}: forward must return a Tensor or a tuple of them; got {_types(results)}"
        )
    for y in results:
        if y.requires_grad:
            raise GradientError(
                f"{_WHO}: forward must read what requires a gradient through its arguments; got a"
                f" result of shape {y.shape} that other tensors lead to, too; pass them as"
                " arguments, or .detach() them"
            )
    ends = [without_gradient(y) if _is_float(y) else y for y in results]
    pullback = _record_backward(backward, args, inner, made, ends)
    if pullback.gates:
        _attach(pullback, ends, args)
    return ends[0] if isinstance(made, Tensor) else tuple(ends)


def _record_backward(
    backward: Callable[..., Any],
    args: Sequence[Any],
    inner: Sequence[Any],
    made: Any,
    ends: Sequence[Tensor],
) -> Pullback:
    """Record the backward now, while its mistakes are on the caller's line."""
    seeds = [passing(y) for y in ends]
    with Recording(f"{_WHO}: the backward", [seed.node for seed in seeds]):
        if isinstance(made, Tensor):
            given = backward(seeds[0], made, *inner)
        else:
            given = backward(tuple(seeds), tuple(made), *inner)
    grads = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(grads) != len(args):
        raise TypeError(
            f"{_WHO}: backward must return one gradient for each of {len(args)} arguments, None"
            f" where there is none; got {len(grads)}"
        )
    gates, results = [], []
    for i, (arg, grad) in enumerate(zip(args, grads, strict=True)):
        if grad is None:
            continue
        _check_grad(i, arg, grad)
        # A view that computes nothing, whatever the strides; its gradient is a view as well.
        gates.append(record(lib.ggml_permute, [arg, 0, 1, 2, 3], arg.shape).node)
        results.append(grad.node)
    return Pullback([seed.node for seed in seeds], gates, results)


def _check_grad(i: int, arg: Any, grad: Any) -> None:
    """Refuse what cannot be the gradient of an argument."""
    if not isinstance(grad, Tensor):
        raise TypeError(
            f"{_WHO}: backward must return Tensors or None; got {type(grad).__name__} for"
            f" argument {i}"
        )
    if not isinstance(arg, Tensor) or arg.dtype.name != "f32":
        what = arg.dtype.name if isinstance(arg, Tensor) else type(arg).__name__
        raise DTypeError(
            f"{_WHO}: only f32 tensors have a gradient; got one for argument {i}, {what};"
            " return None for it"
        )
    if grad.shape != arg.shape or grad.dtype.name != "f32":
        raise ShapeError(
            f"{_WHO}: the gradient of argument {i} must be f32 and of its shape {arg.shape}; got"
            f" {grad.dtype.name}, {grad.shape}"
        )
    if grad.device is not arg.device:
        raise ShapeError(
            f"{_WHO}: the gradient of argument {i} must be on its device, {arg.device.name}; got"
            f" {grad.device.name}"
        )


def _attach(pullback: Pullback, ends: Sequence[Tensor], args: Sequence[Any]) -> None:
    """Let the results come after the gates, and know their backward."""
    barrier = next((a.node.barrier for a in args if isinstance(a, Tensor) and a.node.barrier), None)
    trained = any(gate.requires_grad for gate in pullback.gates)
    for node in (end.node for end in ends if _is_float(end)):
        node.srcs = (*node.srcs, *pullback.gates)
        node.requires_grad, node.barrier = trained, barrier
        node.pullback = pullback
        pullback.outs.append(node)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_float


def _types(values: Iterable[Any]) -> str:
    return ", ".join(type(value).__name__ for value in values) or "nothing"


class Pulled:
    """The custom backwards of a graph, put where ggml's own ends and begins anew.

    Args:
        forward: the graph's nodes.
        needed: ids of those that ggml will want a gradient of.

    Attributes:
        nodes: what they may compute, operands first; some may be of the forward as well.
    """

    def __init__(self, forward: Iterable[Node], needed: Collection[int]):
        found = {
            id(node.pullback): node.pullback
            for node in forward
            if node.pullback is not None and id(node) in needed
        }
        self._pullbacks = list(found.values())
        self._computed = [pullback.nodes() for pullback in self._pullbacks]
        self.nodes = list({id(n): n for nodes in self._computed for n in nodes}.values())
        self._zeros: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._pullbacks)

    @property
    def most_headers(self) -> int:
        """How many headers they may add to a graph."""
        ends = sum(len(p.outs) + 2 * len(p.gates) for p in self._pullbacks)
        return len(self.nodes) + ends

    def outs(self, clones: Mapping[int, Any]) -> list[Any]:
        """The results that are in the graph: ggml computes their gradients as a parameter's."""
        every = [address(out.ptr) for pullback in self._pullbacks for out in pullback.outs]
        return [clones[at] for at in every if at in clones]

    def stand_ins(self, ctx: Any, clones: Mapping[int, Any]) -> dict[int, Any]:
        """Headers that stand for the gradients of gates, by the gates' addresses."""
        self._stand_ins = {
            address(clones[address(gate.ptr)]): lib.ggml_new_tensor(
                ctx, lib.GGML_TYPE_F32, 4, gate.ptr.ne
            )
            for pullback in self._pullbacks
            for gate in pullback.gates
        }
        return self._stand_ins

    def splice(
        self,
        order: Sequence[Any],
        ctx: Any,
        cgraph: Any,
        clones: dict[int, Any],
        copy: Callable[[list[Node], Mapping[int, Any]], list[Any]],
    ) -> list[Any]:
        """Put the recorded backwards before the first op that reads what they make.

        Args:
            order: headers in the order of computing, as ggml expanded them.
            ctx: context of the graph's headers.
            cgraph: knows the results' gradients.
            clones: the graph's headers by the address of the recorded ones.
            copy: makes headers of recorded nodes, some of them at the places that it is told.

        Returns:
            All headers in their new order.
        """
        first = self._first_readers(order)
        waiting: dict[int, list[Any]] = {}
        # The last function of the forward is the first of the backward.
        for pullback, nodes in reversed(list(zip(self._pullbacks, self._computed, strict=True))):
            added = self._seed(pullback, nodes, ctx, cgraph, clones)
            ends = [self._stand_ins[address(clones[address(gate.ptr)])] for gate in pullback.gates]
            into: dict[int, Any] = {}
            for result, stand_in in zip(pullback.results, ends, strict=True):
                if _has_memory(result) and address(result.ptr) not in clones:
                    into.setdefault(address(result.ptr), stand_in)
            added += copy([n for n in nodes if address(n.ptr) not in clones], into)
            for result, stand_in in zip(pullback.results, ends, strict=True):
                if into.get(address(result.ptr)) != stand_in:
                    # Memory of another's: a view, the seed, or one gradient for two arguments.
                    source = lib.ggml_cont(ctx, clones[address(result.ptr)])
                    ffi.memmove(stand_in, source, ffi.sizeof("struct ggml_tensor"))
                    added.append(stand_in)
            at = min(first.get(address(stand_in), len(order)) for stand_in in ends)
            waiting.setdefault(at, []).extend(added)
        made: list[Any] = []
        for i, ptr in enumerate(order):
            made += waiting.get(i, [])
            made.append(ptr)
        return made + waiting.get(len(order), [])

    def _first_readers(self, order: Iterable[Any]) -> dict[int, int]:
        """Where each stand-in, by its address, is read first."""
        made = {address(stand_in) for stand_in in self._stand_ins.values()}
        first: dict[int, int] = {}
        for i, ptr in enumerate(order):
            for source in map(address, sources(ptr)):
                if source in made:
                    first.setdefault(source, i)
        return first

    def _seed(
        self,
        pullback: Pullback,
        nodes: Iterable[Node],
        ctx: Any,
        cgraph: Any,
        clones: dict[int, Any],
    ) -> list[Any]:
        """Let the gradients of the results stand where the backward was recorded with seeds."""
        used = {id(source) for node in nodes for source in node.srcs}
        used |= {id(result) for result in pullback.results}
        added = []
        for out, seed in zip(pullback.outs, pullback.seeds, strict=True):
            if id(seed) not in used:
                continue
            here = clones.get(address(out.ptr))
            grad = ffi.NULL if here is None else lib.ggml_graph_get_grad(cgraph, here)
            if grad == ffi.NULL:  # the loss does not depend on it
                self._zeros.append(zeros(out.shape, device=out.device))
                grad = self._zeros[-1].ptr
            elif not lib.ggml_is_contiguous(grad):
                grad = lib.ggml_cont(ctx, grad)
                added.append(grad)
            clones[address(seed.ptr)] = grad
        return added


def _has_memory(node: Node) -> bool:
    """Whether an op makes the numbers, in memory that is no other's."""
    recorded = node.buffer is None and node.ptr.op != lib.GGML_OP_NONE
    return recorded and bool(node.ptr.view_src == ffi.NULL)
