# SPDX-License-Identifier: MIT
"""Rows of logits and of their gradient, padded for whole vectors of cuBLAS."""

from __future__ import annotations

from typing import Any

from ...backend.headers import MOVES, address, operands
from ...backend.library import ffi, lib
from ..plan import Plan
from .operands import MATMULS, Reader, read_instead, rounded_slots, set_strides

__all__ = ["pad_logits", "write_gradients"]

_LOSSES = (lib.GGML_OP_CROSS_ENTROPY_ROWS, lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK)
# Rows of at least so many classes are padded to a multiple of so many bytes.
_LONG = 1024
_ROW = 128


def pad_logits(plan: Plan, readers: dict[int, list[Any]]) -> None:
    """Let the rows of logits that losses alone read begin at multiples of a vector."""
    for ptr in plan.order:
        if ptr.op != lib.GGML_OP_MUL_MAT or ptr.ne[0] < _LONG:
            continue
        # With other shapes the same rows: what reads them need not know.
        views = [ptr]
        read: list[Any] = []
        for view in views:
            for each in readers.get(address(view), []):
                same = each.op == lib.GGML_OP_RESHAPE and each.ne[0] == ptr.ne[0]
                (views if same else read).append(each)
        kept = any(view.flags & lib.GGML_TENSOR_FLAG_OUTPUT for view in views)
        if kept or ptr.view_src != ffi.NULL or any(each.op not in _LOSSES for each in read):
            continue
        # A gradient that keeps its rows would not lie over the logits.
        gradients = [each for each in read if each.op == lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK]
        if not all(_matmuls_of(each, readers) for each in gradients):
            continue
        strides = [list(view.nb) for view in views]
        for view in views:
            _pad_rows(view)
        if not all(plan.device.supports(each) for each in (ptr, *read)):
            for view, old in zip(views, strides, strict=True):
                set_strides(view, old)


def _pad_rows(ptr: Any) -> None:
    """Let the rows of a header begin at multiples of `_ROW` bytes."""
    row = -(-ptr.ne[0] * ptr.nb[0] // _ROW) * _ROW
    set_strides(ptr, [ptr.nb[0], row, row * ptr.ne[1], row * ptr.ne[1] * ptr.ne[2]])


def _is_padded(ptr: Any) -> bool:
    return bool(ptr.nb[1] > ptr.ne[0] * ptr.nb[0])


def write_gradients(plan: Plan, readers: dict[int, list[Any]]) -> set[int]:
    """Let gradients of logits be written in the rows and the dtype that their matmuls multiply.

    Returns:
        The addresses of those in bf16.
    """
    rounded = set()
    for ptr in plan.order:
        if ptr.op != lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK:
            continue
        matmuls = _matmuls_of(ptr, readers)
        bf16, tf32 = (
            bool(matmuls) and all(rounded_slots(matmul, level) for matmul, _ in matmuls)
            for level in (lib.GGML_PREC_BF16, lib.GGML_PREC_TF32)
        )
        if bf16 and _write(plan, ptr, matmuls, lib.GGML_TYPE_BF16):
            rounded.add(address(ptr))
        # In f32 they lie over logits whose rows are as long.
        elif matmuls and (_is_padded(ptr.src[1]) or (tf32 and ptr.ne[0] >= _LONG)):
            _write(plan, ptr, matmuls, lib.GGML_TYPE_F32)
    return rounded


def _matmuls_of(ptr: Any, readers: dict[int, list[Any]]) -> list[Reader]:
    """Return the matmuls that read a result, and their slots; none if anything else reads it."""
    found = []
    views = [ptr]
    for view in views:
        if view.flags & lib.GGML_TENSOR_FLAG_OUTPUT:
            return []
        for each in {address(each): each for each in readers.get(address(view), [])}.values():
            slots = [i for i, source in enumerate(operands(each)) if source == view]
            if each.op in MOVES:
                views.append(each)
            elif each.op not in MATMULS or max(slots) > 1:  # the third is added to
                return []
            else:
                found += [(each, i) for i in slots]
    return found


def _write(plan: Plan, ptr: Any, matmuls: list[Reader], dtype: int) -> bool:
    """Let an op write padded rows of a dtype; False if the device does not compute all of it."""
    before, strides = ptr.type, list(ptr.nb)
    ptr.type, ptr.nb[0] = dtype, lib.ggml_type_size(dtype)
    _pad_rows(ptr)
    changed: list[tuple[Any, int, Any]] = []
    if plan.device.supports(ptr):
        # The views are part of the graph by the ops that read them.
        changed, _ = read_instead(plan, matmuls, ptr, strides)
        if len(changed) == len(matmuls):
            return True
    for matmul, i, source in changed:
        matmul.src[i] = source
    ptr.type = before
    set_strides(ptr, strides)
    return False
