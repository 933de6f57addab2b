# SPDX-License-Identifier: MIT
"""Walks over recorded nodes, operands first; and gradients that only a graph computes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..backend.buffers import Buffer, writes
from ..backend.library import ffi, lib
from ..errors import GradientError, RecordingError
from ..tensors.gradient_stops import is_detached
from ..tensors.node import Node, recorder
from ..tensors.storage import ne_of
from ..tensors.tensor import Tensor

__all__ = [
    "check_current",
    "divide",
    "is_placeholder",
    "leaves",
    "placeholder",
    "sources_of",
    "walk",
    "walk_calls",
]


def walk(roots: Iterable[Node], done: set[int]) -> list[Node]:
    """Return the nodes below `roots` that are not in `done`, operands first; no recursion."""
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
                for source in reversed(node.srcs):
                    if id(source) not in done:
                        stack.append((source, False))
    return order


def sources_of(node: Node) -> tuple[Node, ...]:
    """Return the operands of a node's call, whose ops may not be recorded yet; else its sources."""
    return node.srcs if node.call is None else node.operands


def walk_calls(*roots: Node) -> list[Node]:
    """Return the nodes below nodes, operands first; a call is one node, recorded or not."""
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[Node | None] = [*roots]
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())  # type: ignore[arg-type]
        elif node not in done:
            done.add(node)
            stack += node, None
            sources = node.srcs if node.call is None else node.operands
            if sources:
                stack += sources[::-1]
    return order


def check_current(who: str, nodes: Iterable[Node]) -> None:
    """Raise if a stored tensor was written since an op was recorded of it.

    A view of a stored tensor has the numbers of that one at any time.

    Args:
        who: what computes the nodes.
        nodes: operands first.

    Raises:
        RecordingError: the numbers would be those of the tensor as it is now.
    """
    now = writes()
    written: dict[Node, Buffer] = {}  # memory of the views that are older than its last write
    for node in nodes:
        if node.born == now:  # nothing at all was written since
            continue
        for source in sources_of(node):
            buffer = source.buffer or written.get(source)
            if buffer is None or buffer.version <= node.born:
                continue
            if not node.layout.views_stored:
                raise _stale(who, node, source)
            written[node] = buffer


def _stale(who: str, node: Node, source: Node) -> RecordingError:
    """Return the error of a node one of whose sources has changed."""
    kind = "a parameter" if source.requires_grad else "a tensor"
    return RecordingError(
        f"{who}: {kind} of shape {source.shape} has been overwritten, as by copy_() or"
        f" optimizer.step(), since {node.where} recorded an op of it; record it again, or call"
        " backward() before the write; read or .detach() numbers that you keep"
    )


def leaves(roots: Iterable[Node]) -> list[Node]:
    """Return the stored nodes below `roots`, without those that only a detach leads to."""
    found: dict[int, Node] = {}
    todo = list(roots)
    while todo:
        node = todo.pop()
        if id(node) not in found:
            found[id(node)] = node
            todo += node.srcs[1:] if is_detached(node) else node.srcs
    return [node for node in found.values() if node.buffer is not None]


def placeholder(like: Tensor) -> Tensor:
    """Make an f32 header of a tensor's shape without memory: a gradient that a graph computes."""
    arena = recorder.room()
    ne = ffi.new("int64_t[]", ne_of(like.shape))
    ptr = lib.ggml_new_tensor(arena.ctx, lib.GGML_TYPE_F32, len(ne), ne)
    return Tensor(Node(ptr, arena, like.device, like.shape))


def is_placeholder(node: Node) -> bool:
    """Return True for what `placeholder` made."""
    return node.buffer is None and bool(node.ptr.op == lib.GGML_OP_NONE)


def divide(nodes: Iterable[Node], transient: Collection[int]) -> tuple[list[Node], list[Node]]:
    """Divide nodes, operands first, by whether they need gradients that are not stored.

    Args:
        nodes: in the order of computing.
        transient: ids of the placeholders of these gradients; they are left out.

    Returns:
        The nodes that need none, and the others.

    Raises:
        GradientError: a gradient is used that the graph does not compute.
    """
    free: list[Node] = []
    bound: list[Node] = []
    needing = set(transient)
    for node in nodes:
        if id(node) in transient:
            continue
        if is_placeholder(node):
            raise GradientError(
                f"graph: the gradient of shape {node.shape}, made at {node.where}, exists only in"
                " a graph with its parameter; pass grads={parameter: gradient} and a loss"
            )
        if any(id(s) in needing for s in node.srcs):
            needing.add(id(node))
            bound.append(node)
        else:
            free.append(node)
    return free, bound
