# SPDX-License-Identifier: MIT
"""Keys of recordings: two with equal keys are one graph with other inputs."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..backend.headers import MOVES, address
from ..backend.library import ffi, lib
from ..tensors.gradient_stops import stopped_by
from ..tensors.moves import has_moved
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

    The key has every header's type, extents, strides, op and parameters as they are in memory, its
    operands by their place in the walk, and the marks of nodes. Parameters and their gradients are
    in it by identity, other stored tensors by shape, type and device.

    Args:
        nodes: all below the loss, operands first.
        grads: gradient of each parameter; None where they are zeros that were just made.

    Attributes:
        key: equal for recordings that the same graph computes; None where no graph can be kept: of
            custom functions, attached updates, writes in place, and of stored tensors that share
            memory with a gradient, have moved or stop gradients.
        inputs: the stored nodes that are in the key by place.
    """

    __slots__ = ("inputs", "key", "nodes")

    def __init__(self, nodes: Sequence[Node], grads: Mapping[Tensor, Tensor | None]):
        self.nodes = nodes
        self.inputs: list[Node] = []
        self.key = self._key({id(p.node): g for p, g in grads.items()})

    def _key(self, grads: Mapping[int, Tensor | None]) -> Hashable | None:
        written = {id(g.node.buffer) for g in grads.values() if g is not None}
        places: dict[int, int] = {0: -1}  # an empty slot
        stored: set[int] = set()
        found: list[Hashable] = []
        unpack, buffer, moves = _FIELDS.unpack_from, ffi.buffer, MOVES
        for i, node in enumerate(self.nodes):
            ptr, notes = node.ptr, node.notes
            at = address(ptr)
            places[at] = i
            if node.buffer is not None:
                stored.add(at)
                if has_moved(node):
                    return None
                if id(node) in grads:
                    grad = grads[id(node)]
                    found.append((id(node), None if grad is None else id(grad.node)))
                    continue
                if id(node.buffer) in written or (notes and stopped_by(node) is not None):
                    return None
                fields = unpack(buffer(ptr, _HEADER))
                found.append((fields[0], fields[1], id(node.device)))
                self.inputs.append(node)
                continue
            fields = unpack(buffer(ptr, _HEADER))
            pointers = fields[_OF_POINTERS]
            if pointers[-1] in stored and ptr.op not in moves:
                return None
            marks: Hashable = None
            if notes:
                if any(value is not True for value in notes.values()):
                    return None
                marks = frozenset(notes)
            operands = tuple(map(places.__getitem__, pointers))
            found.append((fields[0], fields[1], fields[-1], operands, marks))
        return tuple(found)


def copy_recording(nodes: Sequence[Node], places: Mapping[int, Node]) -> list[Node]:
    """Copy recorded nodes with other inputs; return the copies in the order of `nodes`.

    Args:
        nodes: operands first.
        places: stored nodes to take, by the ids of those in whose place they are.
    """
    arena = Arena(sum(node.buffer is None for node in nodes))
    made: dict[int, Node] = {}
    headers: dict[int, Any] = {}
    for node in nodes:
        if node.buffer is not None:
            copy = places.get(id(node), node)
            headers[address(node.ptr)] = copy.ptr
        else:
            ptr = _copy_header(arena, node.ptr, headers)
            copy = node.moved_to(ptr, arena, tuple(made[id(s)] for s in node.srcs))
        made[id(node)] = copy
    return [made[id(node)] for node in nodes]


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
