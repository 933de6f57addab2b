# SPDX-License-Identifier: MIT
"""Results that the backward computes again instead of keeping them, or computes first of all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ...backend.headers import MOVES, address, op_name, sources
from ...backend.library import ffi, lib
from ...tensors.node import Node, recorder
from ...tensors.tensor import Tensor

__all__ = ["checkpoint", "postpone", "recompute", "rewrite"]


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function and keep only its inputs and outputs for the backward.

    What is in between is computed a second time when the backward gets there: less memory for
    more time. Gradients are the same to the last bit, dropout included.

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
    outer, recorder.keep = recorder.keep, False
    try:
        result = fn(*args, **kwargs)
    finally:
        recorder.keep = outer
    for value in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(value, Tensor) and outer:
            _mark(value.node, True)
    return result


def recompute(t: Tensor) -> Tensor:
    """Let the backward compute a recorded tensor again from its sources instead of keeping it.

    Worth its while for large results of cheap ops, such as an activation's.

    Args:
        t: what an op returned.

    Returns:
        The same tensor.

    Raises:
        ValueError: `t` is stored; there is nothing to compute.

    Example:
        >>> recompute(gelu(ones((2,)))).shape
        (2,)
    """
    if not isinstance(t, Tensor):
        raise TypeError(f"recompute: t must be a Tensor; got {type(t).__name__}")
    if t.is_stored:
        raise ValueError("recompute: t must be what an op returned; got a stored tensor")
    _mark(t.node, False)
    return t


def postpone(t: Tensor) -> Tensor:
    """Let a recorded tensor be computed only when the backward comes to it.

    Of large results that only the loss is made of, such as the logits of parts of a batch, each
    then exists from its own computing to its own gradient, and no two at a time. Nothing is
    computed twice, and no number differs. Without a backward it has no effect.

    Args:
        t: what an op returned.

    Returns:
        The same tensor.

    Raises:
        ValueError: `t` is stored; there is nothing to compute.

    Example:
        >>> postpone(linear(ones((1, 2)), ones((3, 2)))).shape
        (1, 3)
    """
    if not isinstance(t, Tensor):
        raise TypeError(f"postpone: t must be a Tensor; got {type(t).__name__}")
    if t.is_stored:
        raise ValueError("postpone: t must be what an op returned; got a stored tensor")
    node = t.node
    while node.ptr.op in MOVES and node.srcs:
        node = node.srcs[0]
    node.late = True
    return t


def _mark(node: Node, keep: bool) -> None:
    """Say whether a result is kept, be it a view: then that of the op below."""
    node.keep = keep
    while node.ptr.op in MOVES and node.srcs:
        node = node.srcs[0]
        node.keep = keep


def check_repeatable(nodes: Iterable[Node]) -> None:
    """Refuse what writes into other tensors' memory: doing it twice is something else.

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

    def __init__(self, ctx: Any, forward: Sequence[Any], forgotten: Collection[int]):
        self._ctx = ctx
        self._forgotten = forgotten
        self._order = {address(ptr): i for i, ptr in enumerate(forward)}
        self._forward = forward
        self.made: dict[int, Any] = {}

    def _missing(self, ptr: Any) -> list[int]:
        """Forgotten results that computing `ptr` needs, in the order of the forward."""
        found: set[int] = set()
        todo = [address(p) for p in sources(ptr)]
        while todo:
            at = todo.pop()
            if at in self._forgotten and at not in self.made and at not in found:
                found.add(at)
                todo += [address(p) for p in sources(self._forward[self._order[at]])]
        return sorted(found, key=self._order.__getitem__)

    def redirect(self, ptr: Any) -> None:
        """Let `ptr` read the copies of what was forgotten."""
        for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
            if source:
                ptr.src[i] = self.made.get(address(source), source)
        if ptr.view_src != ffi.NULL:
            ptr.view_src = self.made.get(address(ptr.view_src), ptr.view_src)

    def make(self, ptr: Any) -> list[Any]:
        """Copies of what `ptr` needs and nothing has computed again yet."""
        made = []
        for at in self._missing(ptr):
            old = self._forward[self._order[at]]
            copy = lib.ggml_new_tensor(self._ctx, old.type, 4, old.ne)
            ffi.memmove(copy, old, ffi.sizeof("struct ggml_tensor"))
            self.made[at] = copy
            self.redirect(copy)
            made.append(copy)
        return made


def _whole(ptr: Any) -> Any:
    """A tensor, or what it is a view of."""
    return ptr.view_src if ptr.view_src != ffi.NULL else ptr


class _Postponed:
    """Results of the forward that are computed when the backward first needs them.

    What is made of them, such as the loss, follows as soon as all its sources are there.
    """

    def __init__(self, forward: Sequence[Any], marked: Collection[int]):
        self._marked = marked
        self._waiting: dict[int, Any] = {}
        self._readers: dict[int, list[Any]] = {}
        for ptr in forward:
            late = [address(p) for p in sources(ptr) if address(p) in self._waiting]
            if late or address(ptr) in marked:
                self._waiting[address(ptr)] = ptr
            for at in late:
                self._readers.setdefault(at, []).append(ptr)
        self._all = frozenset(self._waiting)

    def __contains__(self, at: int) -> bool:
        return at in self._all

    def zeros(self, backward: Sequence[Any]) -> list[Any]:
        """What the gradients of the sources begin with: memory that outlasts each result.

        Made first it does not lie where a result was, so that the next one fits there.
        """
        read = {address(_whole(p)) for ptr in self._waiting.values() for p in sources(ptr)}
        fills = (ptr for ptr in backward if ptr.op == lib.GGML_OP_FILL)
        return [ptr for ptr in fills if address(_whole(ptr.src[0])) in read]

    def take(self, ptr: Any) -> list[Any]:
        """What must be computed before `ptr`, and what can be computed for it."""
        taken: list[Any] = []
        for source in sources(ptr):
            if address(source) in self._waiting:
                taken += self._compute(self._waiting[address(source)])
        return taken

    def rest(self) -> list[Any]:
        """What no gradient needs."""
        taken: list[Any] = []
        while self._waiting:
            taken += self._compute(next(iter(self._waiting.values())))
        return taken

    def _compute(self, ptr: Any) -> list[Any]:
        if address(ptr) not in self._waiting:
            return []
        taken = self.take(ptr)
        if address(ptr) not in self._waiting:  # it followed one of its sources
            return taken
        del self._waiting[address(ptr)]
        taken.append(ptr)
        for reader in self._readers.get(address(ptr), []):
            ready = not any(address(p) in self._waiting for p in sources(reader))
            if ready and address(reader) not in self._marked:
                taken += self._compute(reader)
        return taken


def rewrite(
    nodes: Sequence[Any],
    ctx: Any,
    n_forward: int,
    forgotten: Collection[int],
    late: Collection[int] = (),
) -> tuple[list[Any], dict[int, Any], int]:
    """Order a graph anew: what is forgotten or postponed is computed as late as it can be.

    Args:
        nodes: forward and backward as ggml expanded them; the backward's are changed.
        ctx: context for the copied headers.
        n_forward: nodes before the backward.
        forgotten: addresses of the forward's nodes that are not to be kept.
        late: addresses of the forward's nodes that wait for the backward.

    Returns:
        All nodes in their new order, the copies by the address of the node that each repeats, and
        how many come before the last one of the forward is done.
    """
    postponed = _Postponed(nodes[:n_forward], late)
    nodes = [*nodes[:n_forward], *postponed.zeros(nodes[n_forward:]), *nodes[n_forward:]]
    again = {at for at in forgotten if at not in postponed}
    copies = _Copies(ctx, nodes[:n_forward], again)
    order = [ptr for ptr in nodes[:n_forward] if address(ptr) not in postponed]
    done = len(order)
    seen: set[int] = set()
    for ptr in nodes[n_forward:]:
        if address(ptr) in seen:
            continue
        seen.add(address(ptr))
        order += copies.make(ptr)
        copies.redirect(ptr)
        taken = postponed.take(ptr)
        order += taken
        done = len(order) if taken else done
        order.append(ptr)
    rest = postponed.rest()
    order += rest
    return order, copies.made, len(order) if rest else done
