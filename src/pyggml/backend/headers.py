# SPDX-License-Identifier: MIT
"""Headers of ggml tensors: addresses, names and operands of ops, the memory behind a view."""

from __future__ import annotations

from functools import cache
from typing import Any

from .library import ffi, lib

__all__ = [
    "MOVES",
    "Memory",
    "address",
    "memory_of",
    "op_kind",
    "op_name",
    "operands",
    "own_header",
    "sources",
    "unary_name",
]

# Ops that compute nothing: they name memory that another tensor has.
MOVES = (
    lib.GGML_OP_NONE,
    lib.GGML_OP_RESHAPE,
    lib.GGML_OP_VIEW,
    lib.GGML_OP_PERMUTE,
    lib.GGML_OP_TRANSPOSE,
)
# A buffer and a place in it, or 0 and a header that has no memory yet.
Memory = tuple[int, int]
# Asked for tens of thousands of times as a graph is made: the type is not parsed each time.
_INTEGER = ffi.typeof("uintptr_t")


def address(ptr: Any) -> int:
    """Return the address of a header."""
    return int(ffi.cast(_INTEGER, ptr))


def operands(ptr: Any) -> list[Any]:
    """Return the headers that an op reads, in the order of its slots."""
    return [source for source in ffi.unpack(ptr.src, lib.GGML_MAX_SRC) if source]


def sources(ptr: Any) -> list[Any]:
    """Return the headers that an op names: its operands, and the source of a view."""
    view = ptr.view_src
    return operands(ptr) + ([view] if view else [])


def memory_of(ptr: Any) -> Memory:
    """Return a key of a tensor's memory: views share their source's."""
    root = ptr.view_src if ptr.view_src != ffi.NULL else ptr
    # Two headers may be of one stored tensor; others have no memory before the graph is planned.
    # Each buffer of some backends counts its addresses from the same number: Vulkan's, WebGPU's.
    if root.buffer != ffi.NULL:
        return address(root.buffer), address(root.data)
    return 0, address(root)


def own_header(ptr: Any) -> Any:
    """Return the stored or computed tensor that a chain of views ends at."""
    while ptr.op in MOVES and ptr.buffer == ffi.NULL and ptr.src[0] != ffi.NULL:
        ptr = ptr.src[0]
    return ptr


def op_name(ptr: Any) -> str:
    """Return ggml's name of a node's op, such as MUL_MAT; of a unary one, such as GELU."""
    return str(ffi.string(lib.ggml_op_desc(ptr)).decode())


def op_kind(ptr: Any) -> str:
    """Return the name of a node's entry in `enum ggml_op`, such as MUL_MAT or UNARY."""
    return _name_of(ptr.op)


@cache
def _name_of(op: int) -> str:
    return str(ffi.string(lib.ggml_op_name(op)).decode())


def unary_name(ptr: Any) -> str:
    """Return the name of a node's entry in `enum ggml_unary_op`, such as GELU."""
    return str(ffi.string(lib.ggml_unary_op_name(lib.ggml_get_unary_op(ptr))).decode())
