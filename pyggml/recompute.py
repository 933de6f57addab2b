# SPDX-License-Identifier: MIT
"""Activation checkpointing: results that the backward computes again instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ._lib import ffi, lib
from .differentiable import op_name
from .node import Node, recorder
from .order import MOVES, address, sources
from .tensor import Tensor

__all__ = ["checkpoint", "recompute", "rewrite"]


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
        for i in range(lib.GGML_MAX_SRC):
            if ptr.src[i] != ffi.NULL:
                ptr.src[i] = self.made.get(address(ptr.src[i]), ptr.src[i])
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


def rewrite(
    nodes: Sequence[Any], ctx: Any, n_forward: int, forgotten: Collection[int]
) -> tuple[list[Any], dict[int, Any]]:
    """Order a graph anew so that its backward computes forgotten results again, as late as it can.

    Args:
        nodes: forward and backward as ggml expanded them; the backward's are changed.
        ctx: context for the copied headers.
        n_forward: nodes before the backward.
        forgotten: addresses of the forward's nodes that are not to be kept.

    Returns:
        All nodes in their new order, and the copies by the address of the node that each repeats.
    """
    copies = _Copies(ctx, nodes[:n_forward], forgotten)
    order = list(nodes[:n_forward])
    for ptr in nodes[n_forward:]:
        order += copies.make(ptr)
        copies.redirect(ptr)
        order.append(ptr)
    return order, copies.made
