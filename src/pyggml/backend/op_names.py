# SPDX-License-Identifier: MIT
"""The names of ops in ggml's C: MUL_MAT, UNARY, GELU."""

from __future__ import annotations

from functools import cache
from typing import Any

from .library import ffi, lib

__all__ = ["op_kind", "op_name", "unary_name"]


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
