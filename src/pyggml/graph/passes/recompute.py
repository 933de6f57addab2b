# SPDX-License-Identifier: MIT
"""The pass that lets the backward compute results again instead of keeping them, or defers them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ...backend.headers import MOVES, address, op_name, own_header, sources
from ...backend.library import ffi, lib
from ...checks import function, instance
from ...tensors.node import Node, NodeTable, listen, listeners
from ...tensors.tensor import Tensor
from ..attached_updates import is_attached
from ..plan import Plan
from ..spare import bytes_for_speed, is_sparing
from .defer import Deferred, deferred

__all__ = ["checkpoint", "is_cheap", "recompute", "recompute_and_defer"]

# Results that the backward computes again; those of them that a checkpoint holds, and those for
# which memory is to be spared.
_RECOMPUTED: NodeTable[bool] = NodeTable()
_CHECKPOINTED: NodeTable[bool] = NodeTable()
_SPARED: NodeTable[bool] = NodeTable()


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function and keep only its inputs and outputs for the backward.

    The backward computes everything in between a second time: less memory for more time. Gradients
    are the same to the last bit, dropout included.

    Args:
        fn: records ops; returns a tensor, or a list or tuple that holds tensors.
        args: passed on.
        kwargs: passed on.

    Returns:
        What `fn` returns.

    Source: torch.utils.checkpoint; Chen et al. 2016, arXiv:1604.06174.

    Example:
        >>> x = checkpoint(block, x)  # doctest: +SKIP
    """
    function("checkpoint", "fn", fn)
    inside = _recompute in listeners  # of another checkpoint
    with listen(_recompute):
        result = fn(*args, **kwargs)
    for value in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(value, Tensor) and not inside:
            for node in _viewed(value.node):
                _RECOMPUTED.discard(node)
                _CHECKPOINTED.discard(node)
    return result


def recompute(t: Tensor) -> Tensor:
    """Let the backward compute a recorded tensor again from its sources instead of keeping it.

    Worth its while for large results of cheap ops, such as an activation's. A CUDA device keeps
    them if all that a graph marks takes at most a sixteenth of its memory.

    Args:
        t: what an op returned.

    Returns:
        The same tensor.

    Raises:
        ValueError: `t` is stored; there is nothing to compute.

    Example:
        >>> recompute(pg.ops.gelu(pg.ones(2))).shape
        (2,)
    """
    if instance("recompute", "t", t, Tensor).is_stored:
        raise ValueError("recompute: t must be what an op returned; got a stored tensor")
    for node in _viewed(t.node):
        _RECOMPUTED[node] = True
        if is_sparing():
            _SPARED[node] = True
    return t


def is_cheap(node: Node) -> bool:
    """Return True for a result that `recompute` marked, outside of any checkpoint.

    It may be kept in another form instead, if that takes less memory than it does.
    """
    return node in _RECOMPUTED and node not in _CHECKPOINTED


def _recompute(node: Node) -> None:
    """Mark a result; called with each one that is recorded in a checkpoint."""
    _RECOMPUTED[node] = _CHECKPOINTED[node] = True


def _viewed(node: Node) -> Iterator[Node]:
    """Yield a node and, where it is a view, the nodes below down to the op that computes it."""
    yield node
    while node.layout.is_view and node.ptr.op in MOVES and node.srcs:
        node = node.srcs[0]
        yield node


def recompute_and_defer(plan: Plan) -> None:
    """Compute marked results again in the backward, and deferred ones as late as possible."""
    if plan.loss is None:
        return
    again = {address(plan.header(node)): node for node in _to_recompute(plan, plan.loss.node)}
    waiting = {address(plan.header(node)) for node in deferred(plan.forward)}
    if not again and not waiting:
        return
    plan.order, copies, plan.n_forward = _reorder(
        plan.order, plan.ctx, plan.n_forward, again.keys(), waiting
    )
    for at, copy in copies.items():
        plan.recorded[address(copy)] = again[at]


def _to_recompute(plan: Plan, loss: Node) -> list[Node]:
    """Return the marked nodes that nobody but the graph reads and the device does not keep."""
    found: dict[int, Node] = {}
    kept = _kept(plan)
    for node in plan.forward:
        if node.buffer is not None or id(node) in plan.outputs or node is loss:
            continue
        # A view that is kept would keep what it is a view of.
        views = node.ptr.op in MOVES and any(id(source) in found for source in node.srcs)
        marked = node in _RECOMPUTED and id(node) not in kept
        if views or (marked and not is_attached(node)):
            found[id(node)] = node
    _check_repeatable(found.values())
    return list(found.values())


def _kept(plan: Plan) -> set[int]:
    """Return the ids of marked nodes that are kept: all for which there is memory, or none."""
    most = bytes_for_speed(plan.device)
    marked = [node for node in plan.forward if is_cheap(node) and node not in _SPARED]
    if not most or not marked:
        return set()
    backward = plan.order[plan.n_forward :]
    read = {address(own_header(source)) for ptr in backward for source in sources(ptr)}
    headers = [plan.header(node) for node in marked]
    needed = sum(lib.ggml_nbytes(ptr) for ptr in headers if address(ptr) in read)
    return {id(node) for node in marked} if needed <= most else set()


def _check_repeatable(nodes: Iterable[Node]) -> None:
    """Raise for ops that write into other tensors' memory: to do it twice is something else.

    Raises:
        ValueError: such an op was recorded inside of `checkpoint`.
    """
    nodes = list(nodes)
    # What is written may be a copy made for it, as in set_rows: it is made twice, too.
    copies = {address(node.ptr) for node in nodes if node.ptr.op == lib.GGML_OP_CONT}
    for node in nodes:
        if node.ptr.op in MOVES or node.ptr.view_src == ffi.NULL:
            continue
        if address(node.ptr.view_src) not in copies:
            raise ValueError(
                f"checkpoint: {op_name(node.ptr)}, recorded at {node.where}, writes in place and"
                " cannot be computed twice; record it outside"
            )


class _Copies:
    """Second headers for results of the forward that the backward computes again."""

    def __init__(self, ctx: Any, forward: Sequence[Any], again: Collection[int]):
        self._ctx = ctx
        self._again = again
        self._order = {address(ptr): i for i, ptr in enumerate(forward)}
        self._forward = forward
        self.made: dict[int, Any] = {}

    def _missing(self, ptr: Any) -> list[int]:
        """Return the results to recompute for `ptr`, in the order of the forward."""
        found: set[int] = set()
        todo = [address(p) for p in sources(ptr)]
        while todo:
            at = todo.pop()
            if at in self._again and at not in self.made and at not in found:
                found.add(at)
                todo += [address(p) for p in sources(self._forward[self._order[at]])]
        return sorted(found, key=self._order.__getitem__)

    def redirect(self, ptr: Any) -> None:
        """Let `ptr` read the copies."""
        for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
            if source:
                ptr.src[i] = self.made.get(address(source), source)
        if ptr.view_src != ffi.NULL:
            ptr.view_src = self.made.get(address(ptr.view_src), ptr.view_src)

    def make(self, ptr: Any) -> list[Any]:
        """Copy the results that `ptr` needs and nothing has computed again yet."""
        made = []
        for at in self._missing(ptr):
            old = self._forward[self._order[at]]
            copy = lib.ggml_new_tensor(self._ctx, old.type, 4, old.ne)
            ffi.memmove(copy, old, ffi.sizeof("struct ggml_tensor"))
            self.made[at] = copy
            self.redirect(copy)
            made.append(copy)
        return made


def _reorder(
    nodes: Sequence[Any],
    ctx: Any,
    n_forward: int,
    again: Collection[int],
    waiting: Collection[int],
) -> tuple[list[Any], dict[int, Any], int]:
    """Reorder a graph so that recomputed and deferred results are computed late.

    Args:
        nodes: forward and backward as ggml expanded them; the backward's are changed.
        ctx: context for the copied headers.
        n_forward: nodes before the backward.
        again: addresses of the forward's nodes that are not to be kept.
        waiting: addresses of the forward's nodes that wait for the backward.

    Returns:
        All nodes in their new order, the copies by the address of the node that each repeats, and
        how many come before the last one of the forward is done.
    """
    later = Deferred(nodes[:n_forward], waiting)
    nodes = [*nodes[:n_forward], *later.zeros(nodes[n_forward:]), *nodes[n_forward:]]
    copies = _Copies(ctx, nodes[:n_forward], {at for at in again if at not in later})
    order = [ptr for ptr in nodes[:n_forward] if address(ptr) not in later]
    done = len(order)
    seen: set[int] = set()
    for ptr in nodes[n_forward:]:
        if address(ptr) in seen:
            continue
        seen.add(address(ptr))
        order += copies.make(ptr)
        copies.redirect(ptr)
        taken = later.take(ptr)
        order += taken
        done = len(order) if taken else done
        order.append(ptr)
    rest = later.rest()
    order += rest
    return order, copies.made, len(order) if rest else done
