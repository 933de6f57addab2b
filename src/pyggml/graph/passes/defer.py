# SPDX-License-Identifier: MIT
"""Results of the forward that are computed when the backward first needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ...backend.headers import MOVES, address, sources
from ...backend.library import ffi, lib
from ...checks import instance
from ...tensors.node import Node, NodeTable
from ...tensors.tensor import Tensor

__all__ = ["Deferred", "deferred", "postpone"]

_DEFERRED: NodeTable[bool] = NodeTable()


def postpone(t: Tensor) -> Tensor:
    """Defer the computation of a recorded tensor to when the backward first needs it.

    Use it for large results that only the loss is computed from, such as the logits of parts of a
    batch: each then exists from its own computation to its own gradient, and no two exist at a
    time. Nothing is computed twice, and no number differs. Without a backward it has no effect.

    Args:
        t: what an op returned.

    Returns:
        The same tensor.

    Raises:
        ValueError: `t` is stored; there is nothing to compute.

    Example:
        >>> postpone(pg.ops.linear(pg.ones(1, 2), pg.ones(3, 2))).shape
        (1, 3)
    """
    if instance("postpone", "t", t, Tensor).is_stored:
        raise ValueError("postpone: t must be what an op returned; got a stored tensor")
    node = t.node
    while node.layout.is_view and node.ptr.op in MOVES and node.srcs:
        node = node.srcs[0]
    _DEFERRED[node] = True
    return t


def deferred(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that `postpone` marked."""
    return [node for node in nodes if node in _DEFERRED]


def _whole(ptr: Any) -> Any:
    """Return a tensor, or what it is a view of."""
    return ptr.view_src if ptr.view_src != ffi.NULL else ptr


class Deferred:
    """Results of the forward that are computed when the backward first needs them.

    What is made of them, such as the loss, follows as soon as all its sources are there.
    """

    def __init__(self, forward: Sequence[Any], marked: Collection[int]):
        self._marked = marked
        self._waiting: dict[int, Any] = {}
        self._readers: dict[int, list[Any]] = {}
        for ptr in forward:
            deferred = [address(p) for p in sources(ptr) if address(p) in self._waiting]
            if deferred or address(ptr) in marked:
                self._waiting[address(ptr)] = ptr
            for at in deferred:
                self._readers.setdefault(at, []).append(ptr)
        self._all = frozenset(self._waiting)

    def __contains__(self, at: int) -> bool:
        return at in self._all

    def zeros(self, backward: Sequence[Any]) -> list[Any]:
        """Return the zeros that the sources' gradients start from; they outlive each result.

        Made first it does not lie where a result was, so that the next one fits there.
        """
        read = {address(_whole(p)) for ptr in self._waiting.values() for p in sources(ptr)}
        fills = (ptr for ptr in backward if ptr.op == lib.GGML_OP_FILL)
        return [ptr for ptr in fills if address(_whole(ptr.src[0])) in read]

    def take(self, ptr: Any) -> list[Any]:
        """Return the deferred ops to compute before `ptr`, and the ones to compute after those."""
        taken: list[Any] = []
        for source in sources(ptr):
            if address(source) in self._waiting:
                taken += self._compute(self._waiting[address(source)])
        return taken

    def rest(self) -> list[Any]:
        """Return the deferred ops that no gradient needs."""
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
