# SPDX-License-Identifier: MIT
"""Keys of recordings: two with equal keys are one graph with other inputs."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..backend.headers import MOVES, address
from ..backend.library import ffi, lib
from ..tensors.gradient_stops import stopped_by
from ..tensors.moves import has_moved, move_count
from ..tensors.node import Arena, Node
from ..tensors.tensor import Tensor

__all__ = ["Structure", "copy_recording"]

_HEADER = ffi.sizeof("struct ggml_tensor")


def _offset(field: str) -> int:
    return int(ffi.offsetof("struct ggml_tensor", field))


# A header without what differs between equal recordings: its memory, its name.
_FIELDS = struct.Struct(
    f"=4s{_offset('ne') - 4}x{_offset('src') - _offset('ne')}s{lib.GGML_MAX_SRC + 1}QQ"
)
_OF_POINTERS = slice(2, 3 + lib.GGML_MAX_SRC)


class Structure:
    """A recorded loss, reduced to what decides about its graph.

    The key has every call with the places of its operands in the walk. Of ops that no call stands
    for it has the header's type, extents, strides, op and parameters as they are in memory. Marks
    of nodes are in it, parameters and their gradients by identity, and other stored tensors by
    shape, type and device.

    Args:
        nodes: all below the loss, operands first, as `walk_calls` returns them.
        grads: gradient of each parameter's node; None where they are zeros that were just made.

    Attributes:
        key: equal for recordings that the same graph computes; None where no graph can be kept: of
            custom functions, attached updates, writes in place, and of stored tensors that share
            memory with a gradient, have moved or stop gradients.
        inputs: the stored nodes that are in the key by place.
    """

    __slots__ = ("inputs", "key", "nodes")

    def __init__(self, nodes: Sequence[Node], grads: Mapping[Node, Tensor | None]):
        self.nodes = nodes
        self.inputs: list[Node] = []
        self.key = self._key(grads)

    def _key(self, grads: Mapping[Node, Tensor | None]) -> Hashable | None:
        written = {g.node.buffer for g in grads.values() if g is not None}
        moves = move_count()
        places: dict[Node, int] = {}
        found: list[Hashable] = []
        for i, node in enumerate(self.nodes):
            places[node] = i
            notes, call = node.notes, node.call
            if node.buffer is not None:
                if moves and has_moved(node):
                    return None
                if node in grads:
                    grad = grads[node]
                    found.append((id(node), None if grad is None else id(grad.node)))
                    continue
                if node.buffer in written or (notes and stopped_by(node) is not None):
                    return None
                found.append(node.layout)
                self.inputs.append(node)
                continue
            marks: Hashable = None
            if notes and (call is None or notes != call.notes):
                own = {t: v for t, v in notes.items() if call is None or not t.of_ops}
                if any(value is not True for value in own.values()):
                    return None
                marks = frozenset(own)
            if call is None:
                op = _op_key(node, places)
                if op is None:
                    return None
                found.append((op, marks))
            else:
                found.append((call, marks, *[places[each] for each in node.operands]))
        return tuple(found)


def _op_key(node: Node, places: Mapping[Node, int]) -> Hashable | None:
    """Return the key of a recorded op; None for one that writes into a stored tensor."""
    ptr = node.ptr
    root = ptr.view_src
    if root and root.buffer and ptr.op not in MOVES:
        return None
    # A view's memory is that of an operand, or what that is a view of.
    known: dict[int, Hashable] = {0: None, address(ptr): -1}  # ggml_cast has itself as a source
    for source in node.srcs:
        memory = source.ptr.view_src
        if memory:
            known[address(memory)] = "memory", places[source]
    known.update((address(source.ptr), places[source]) for source in node.srcs)
    fields = _FIELDS.unpack_from(ffi.buffer(ptr, _HEADER))
    operands = tuple(map(known.__getitem__, fields[_OF_POINTERS]))
    return fields[0], fields[1], fields[-1], operands


def copy_recording(nodes: Sequence[Node], places: Mapping[int, Node]) -> list[Node]:
    """Copy recorded nodes with other inputs; return the copies in the order of `nodes`.

    Args:
        nodes: operands first, as `walk_calls` returns them.
        places: stored nodes to take, by the ids of those in whose place they are.
    """
    arena = Arena(sum(node.buffer is None and node.call is None for node in nodes))
    made: dict[Node, Node] = {}
    headers: dict[int, Any] = {}
    for node in nodes:
        if node.buffer is not None:
            made[node] = places.get(id(node), node)
        elif node.call is not None:
            made[node] = Node.again(node, tuple(made[each] for each in node.operands))
        else:
            for source in node.srcs:
                copy, root = made[source].ptr, source.ptr.view_src
                if root:
                    headers[address(root)] = copy.view_src
                headers[address(source.ptr)] = copy
            ptr = _copy_header(arena, node.ptr, headers)
            made[node] = node.moved_to(ptr, arena, tuple(made[s] for s in node.srcs))
    return [made[node] for node in nodes]


def _copy_header(arena: Arena, ptr: Any, headers: dict[int, Any]) -> Any:
    """Copy a header whose operands have been copied."""
    copy = lib.ggml_new_tensor(arena.ctx, ptr.type, 4, ptr.ne)
    ffi.memmove(copy, ptr, _HEADER)
    headers[address(ptr)] = copy  # ggml_cast has itself as a source
    for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
        if source:
            copy.src[i] = headers[address(source)]
    root = ptr.view_src
    if root:
        copy.view_src = root = headers[address(root)]
        copy.data = ffi.cast("char *", root.data) + ptr.view_offs if root.data else ffi.NULL
    return copy
