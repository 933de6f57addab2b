# SPDX-License-Identifier: MIT
"""Operands that ops may round, and other headers in their place."""

from __future__ import annotations

from typing import Any

from ...backend.headers import address, own_header
from ...backend.library import lib
from ..plan import Plan

__all__ = [
    "MATMULS",
    "Reader",
    "computes_rounded",
    "read_instead",
    "rounded_slots",
    "set_strides",
]

# An op, and the slot of one of its operands.
Reader = tuple[Any, int]

MATMULS = (lib.GGML_OP_MUL_MAT, lib.GGML_OP_OUT_PROD)
# Which sources of an op may be rounded, and where the permissions of its sources begin among its
# parameters: those of ggml_prec_set_src. Attention's are q, k and v.
_ROUNDED = {
    lib.GGML_OP_MUL_MAT: (range(2), 2),
    lib.GGML_OP_OUT_PROD: (range(2), 2),
    lib.GGML_OP_FLASH_ATTN_EXT: (range(3), 5),
    lib.GGML_OP_FLASH_ATTN_EXT_BACK: (range(1, 4), 3),
}
# With fewer columns, or rows of queries, kernels read each number once, and matmuls are in f32.
_LEAST_COLUMNS = 16


def rounded_slots(ptr: Any, level: int) -> range:
    """Return the slots of an op's f32 operands, all of which may be rounded, or none.

    Args:
        ptr: the op.
        level: a `ggml_prec` that each of them must have at least.
    """
    if ptr.op not in _ROUNDED:
        return range(0)
    slots, permissions = _ROUNDED[ptr.op]
    columns = ptr.src[1 if ptr.op in MATMULS else slots[0]].ne[1]
    may = columns >= _LEAST_COLUMNS and all(
        ptr.src[i].type == lib.GGML_TYPE_F32 and ptr.op_params[permissions + i] >= level
        for i in slots
    )
    return slots if may else range(0)


def computes_rounded(plan: Plan, ptr: Any) -> bool:
    """Return True if a device computes an op with each operand that may be rounded in bf16."""
    slots, _ = _ROUNDED[ptr.op]
    found = {address(ptr.src[i]): ptr.src[i] for i in slots}.values()
    before = [(each, list(each.nb), each.view_offs) for each in found]
    for each, strides, offset in before:
        each.type, each.view_offs = lib.GGML_TYPE_BF16, offset // 2
        set_strides(each, [stride // 2 for stride in strides])
    computes = plan.device.supports(ptr)
    for each, strides, offset in before:
        each.type, each.view_offs = lib.GGML_TYPE_F32, offset
        set_strides(each, strides)
    return computes


def read_instead(
    plan: Plan, readers: list[Reader], copy: Any, strides: list[int]
) -> tuple[list[tuple[Any, int, Any]], list[Any]]:
    """Let the ops that the device then computes read `copy` instead of what they read.

    Args:
        plan: the graph.
        readers: the ops, and the slots of what they read or of a view of it.
        copy: of the same shape.
        strides: of what they read, in bytes.

    Returns:
        Each op, the slot and the operand that it had; and the views of `copy` that are read.
    """
    changed = []
    views: dict[int, Any] = {}
    for ptr, i in readers:
        source = ptr.src[i]
        view = views.get(address(source)) or _like(plan.ctx, source, copy, strides)
        if view is None:
            continue
        ptr.src[i] = view
        if plan.device.supports(ptr):
            changed.append((ptr, i, source))
            views[address(source)] = view
        else:
            ptr.src[i] = source
    return changed, [view for view in views.values() if view != copy]


def _like(ctx: Any, source: Any, copy: Any, strides: list[int]) -> Any:
    """Return the view of `copy` that `source` is of a tensor with these strides, or None."""
    base = own_header(source)
    if source == base:
        return copy
    size, row = strides[:2]
    offset = int(source.view_offs) - int(base.view_offs)
    inside = offset % row + sum(
        (source.ne[axis] - 1) * source.nb[axis] for axis in range(4) if source.nb[axis] % row
    )
    if inside >= row and row * copy.nb[0] != size * copy.nb[1]:
        return None  # it goes on from one row to the next, and there are other gaps between them

    def moved(n: int) -> int:
        return int(n // row * copy.nb[1] + n % row // size * copy.nb[0])

    view = lib.ggml_view_4d(ctx, copy, *source.ne[0:4], 0, 0, 0, moved(offset))
    set_strides(view, [moved(stride) for stride in source.nb])
    return view


def set_strides(ptr: Any, strides: list[int]) -> None:
    """Give a header these strides, in bytes."""
    for axis, stride in enumerate(strides):
        ptr.nb[axis] = stride
