# SPDX-License-Identifier: MIT
"""In-place updates attached to tensors: a graph that computes the tensor runs its updates."""

from __future__ import annotations

from collections.abc import Iterable

from ..backend.buffers import Buffer
from ..backend.headers import MOVES
from ..backend.library import ffi
from ..checks import instance
from ..tensors.node import Node, NodeTable
from ..tensors.tensor import Tensor
from .walk import walk

__all__ = ["attach_again", "attach_update", "end_updates", "is_attached", "targets", "with_updates"]

_UPDATES: NodeTable[list[Node]] = NodeTable()
_ATTACHED: NodeTable[bool] = NodeTable()


def attach_update(t: Tensor, update: Tensor) -> Tensor:
    """Attach an in-place op to `t`: every run of a graph that computes `t` carries it out.

    A layer keeps running statistics this way: the code that makes the graph need not know of them.
    The op is carried out after the forward, once in each run; also where the backward computes `t`
    a second time. Reading `t` or what depends on it and `backward()` carry it out once together,
    and graphs that are made afterwards do not.

    Args:
        t: what an op returned.
        update: an in-place op of stored tensors and of what `t` is computed from, such as
            `ops.cpy` into a buffer.

    Returns:
        The same tensor `t`.

    Raises:
        ValueError: `t` is stored, so that no graph computes it; or the update writes nothing.

    Example:
        >>> count = pg.zeros(2)
        >>> y = pg.ops.exp(count)
        >>> y = attach_update(y, pg.ops.cpy(count + 1.0, count))
        >>> y.tolist(), count.tolist()
        ([1.0, 1.0], [1.0, 1.0])
    """
    for name, value in (("t", t), ("update", update)):
        if instance("attach_update", name, value, Tensor).is_stored:
            raise ValueError(f"attach_update: {name} must be what an op returned; got {value!r}")
    if update.ptr.view_src == ffi.NULL or update.ptr.op in MOVES:
        raise ValueError("attach_update: update must write in place, as ops.cpy does")
    _ATTACHED[update.node] = True
    _UPDATES[t.node] = [*(_UPDATES.get(t.node) or ()), update.node]
    return t


def is_attached(node: Node) -> bool:
    """Return True for an attached update, which runs once even where its tensor is recomputed."""
    return node in _ATTACHED


def end_updates(nodes: Iterable[Node], ended: list[tuple[Node, list[Node]]]) -> None:
    """Detach the updates of nodes, and of the updates' operands: a run carries them out.

    Args:
        nodes: what the run computes.
        ended: gets each node with its updates, for `attach_again`.
    """
    for node in nodes:
        updates = _UPDATES.get(node)
        if updates:
            ended.append((node, updates))
            _UPDATES.discard(node)
            end_updates(walk(updates, set()), ended)


def targets(ended: Iterable[tuple[Node, list[Node]]]) -> dict[Node, Buffer]:
    """Return the stored nodes that updates write into, with their memory.

    Args:
        ended: nodes with their updates.
    """
    found = {}
    for _, updates in ended:
        roots = {update.ptr.view_src for update in updates}
        for node in walk(updates, set()):
            if node.buffer is not None and node.ptr in roots:
                found[node] = node.buffer
    return found


def attach_again(ended: Iterable[tuple[Node, list[Node]]]) -> None:
    """Attach what `end_updates` has detached, where the run failed."""
    for node, updates in ended:
        _UPDATES[node] = updates


def with_updates(nodes: list[Node], seen: set[int]) -> list[Node]:
    """Return nodes and, after all of them, the updates attached to them and their operands.

    Whatever reads a target then has its numbers of before.

    Args:
        nodes: operands first.
        seen: ids of the nodes that a walk has met; it grows.
    """
    order = list(nodes)
    for node in order:  # it grows: an operand of an update may have updates, too
        order += walk(_UPDATES.get(node) or (), seen)
    return order
