# SPDX-License-Identifier: MIT
"""The pass that rounds an operand of matmuls and attention to bf16 once, not in each of them."""

from __future__ import annotations

from typing import Any

from ...backend.headers import MOVES, Memory, address, memory_of, operands, own_header, sources
from ...backend.library import ffi, lib
from ..plan import Plan
from .recompute import is_cheap
from .updates import accesses

__all__ = ["round_once"]

# Which sources of an op may be rounded, and where the permissions of its sources begin among its
# parameters: those of ggml_prec_set_src. Attention's are q, k and v.
_ROUNDED = {
    lib.GGML_OP_MUL_MAT: (range(2), 2),
    lib.GGML_OP_OUT_PROD: (range(2), 2),
    lib.GGML_OP_FLASH_ATTN_EXT: (range(3), 5),
    lib.GGML_OP_FLASH_ATTN_EXT_BACK: (range(1, 4), 3),
}
_MATMULS = (lib.GGML_OP_MUL_MAT, lib.GGML_OP_OUT_PROD)
_LOSSES = (lib.GGML_OP_CROSS_ENTROPY_ROWS, lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK)
# With fewer columns, or rows of queries, kernels read each number once, and matmuls are in f32.
_LEAST_COLUMNS = 16
# Rows of logits of at least so many classes are padded to a multiple of 128 bytes in bf16.
_LONG = 1024
_ROW = 64


class _Operand:
    """A tensor, and the ops that may round it, each with the slot where they read it."""

    def __init__(self, base: Any):
        self.base = base
        self.readers: list[tuple[Any, int]] = []


def round_once(plan: Plan) -> None:
    """Give ops that may round a common f32 operand one bf16 copy of it.

    A weight is multiplied in the forward and in the backward, an activation and the gradient of a
    result twice as well; attention reads q, k and v in both. A GPU would round each of them in
    front of each op. What only such ops read is kept as a copy alone. An activation that
    is marked with `recompute` is not computed again for a matmul: its copy is kept. The gradient of
    logits is written in bf16, and rows of logits begin at multiples of 128 bytes, so that cuBLAS
    reads and writes whole vectors.

    Source: torch.autocast, which keeps the rounded weights of a step.
    """
    if not plan.device.rounds_operands:
        return
    readers: dict[int, list[Any]] = {}
    for ptr in plan.order:
        for source in operands(ptr):
            readers.setdefault(address(source), []).append(ptr)
    _pad_logits(plan, readers)
    computed = {address(ptr) for ptr in plan.order if ptr.op != lib.GGML_OP_NONE}
    zeros = _zeros(plan)
    before: dict[int, list[Any]] = {}  # what to compute right before an op, by its address
    after: dict[int, list[Any]] = {}
    for operand in _operands(plan):
        if _write_rounded(plan, operand, readers):
            continue
        first, made = _round(plan, operand)
        at = address(operand.base)
        if at not in computed:
            before.setdefault(address(first), []).extend(made)
            continue
        # Behind its base a copy is part of a kernel that computes both.
        after.setdefault(at, []).extend(made)
        for ptr in zeros.get(at, ()) if made else ():
            ptr.src[0] = made[0]
    forward = _with(plan.order[: plan.n_forward], before, after)
    order = forward + _with(plan.order[plan.n_forward :], before, after)
    unread = _unread(plan, order)
    plan.n_forward = sum(address(ptr) not in unread for ptr in forward)
    plan.order = [ptr for ptr in order if address(ptr) not in unread]


def _with(order: list[Any], before: dict[int, list[Any]], after: dict[int, list[Any]]) -> list[Any]:
    """Return headers, each between what is to be computed before and after it."""
    found: list[Any] = []
    for ptr in order:
        found += [*before.get(address(ptr), ()), ptr, *after.get(address(ptr), ())]
    return found


def _operands(plan: Plan) -> list[_Operand]:
    """Return what is rounded more than once, in the order of the first op that rounds it."""
    current: dict[tuple[Memory, int], _Operand] = {}
    found: list[_Operand] = []
    for ptr in plan.order:
        for i in _rounded_slots(ptr):
            base = own_header(ptr.src[i])
            if not lib.ggml_is_contiguous(base):
                continue
            key = _key(base)
            node = plan.recorded.get(address(base))
            if node is not None and is_cheap(node) and _key(plan.header(node)) in current:
                key = _key(plan.header(node))
            if key not in current:
                current[key] = _Operand(base)
                found.append(current[key])
            current[key].readers.append((ptr, i))
        written = {memory for memory, writes in accesses(ptr) if writes}
        if written:
            current = {key: each for key, each in current.items() if key[0] not in written}
    return [each for each in found if len(each.readers) > 1]


def _key(base: Any) -> tuple[Memory, int]:
    return memory_of(base), int(base.view_offs)


def _rounded_slots(ptr: Any) -> range:
    """Return the slots of an op's f32 operands, all of which may be rounded to bf16, or none."""
    if ptr.op not in _ROUNDED:
        return range(0)
    slots, permissions = _ROUNDED[ptr.op]
    columns = ptr.src[1 if ptr.op in _MATMULS else slots[0]].ne[1]
    may = columns >= _LEAST_COLUMNS and all(
        ptr.src[i].type == lib.GGML_TYPE_F32
        and ptr.op_params[permissions + i] >= lib.GGML_PREC_BF16
        for i in slots
    )
    return slots if may else range(0)


def _zeros(plan: Plan) -> dict[int, list[Any]]:
    """Return, by the tensor whose shape they have, zeros to which gradients of its parts are added.

    They read a copy of it as well: of its source FILL needs the shape alone.
    """
    found: dict[int, list[Any]] = {}
    for ptr in plan.order:
        if ptr.op == lib.GGML_OP_FILL:
            found.setdefault(address(own_header(ptr.src[0])), []).append(ptr)
    return found


def _round(plan: Plan, operand: _Operand) -> tuple[Any, list[Any]]:
    """Let the readers of an operand read a copy; return the first, and what makes the copy."""
    base = operand.base
    copy = lib.ggml_cast(plan.ctx, base, lib.GGML_TYPE_BF16)
    copy.src[2] = _read_beside(base)
    changed, views = _read_instead(plan, operand, copy, list(base.nb))
    if len(changed) > 1 and plan.device.supports(copy):
        return changed[0][0], [copy, *views]
    for ptr, i, source in changed:
        ptr.src[i] = source
    return operand.readers[0][0], []


def _read_beside(base: Any) -> Any:
    """Return what the kernel that computes a result and its copy reads while it writes the copy.

    As a source of the copy it is not freed before, so that the copy does not lie over it.
    """
    if base.op == lib.GGML_OP_GELU_BACK:
        return base.src[1]
    zeros = base.view_src
    if base.op == lib.GGML_OP_ACC and zeros != ffi.NULL and zeros.op == lib.GGML_OP_FILL:
        return zeros.src[0]  # of attention: q, k and v, if they are parts of one tensor
    return ffi.NULL


def _write_rounded(plan: Plan, operand: _Operand, readers: dict[int, list[Any]]) -> bool:
    """Let the gradient of logits be written in bf16; False if others than matmuls read it."""
    base = operand.base
    if base.op != lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK:
        return False
    known = {address(ptr) for ptr, _ in operand.readers}
    read = list(readers[address(base)])
    for ptr in read:
        if ptr.op in MOVES:
            read += readers.get(address(ptr), [])
    if any(ptr.op not in MOVES and address(ptr) not in known for ptr in read):
        return False
    strides = list(base.nb)
    base.type, base.nb[0] = lib.GGML_TYPE_BF16, 2
    _pad_rows(base)
    changed: list[tuple[Any, int, Any]] = []
    if plan.device.supports(base):
        # The views are part of the graph by the ops that read them.
        changed, _ = _read_instead(plan, operand, base, strides)
        if len(changed) == len(operand.readers):
            return True
    for ptr, i, source in changed:
        ptr.src[i] = source
    base.type = lib.GGML_TYPE_F32
    for axis in range(4):
        base.nb[axis] = strides[axis]
    return False


def _read_instead(
    plan: Plan, operand: _Operand, copy: Any, strides: list[int]
) -> tuple[list[tuple[Any, int, Any]], list[Any]]:
    """Let the matmuls that the device then computes read `copy` instead of what they read.

    Args:
        plan: the graph.
        operand: what they read, with these strides in bytes.
        copy: of the same shape.
        strides: of `operand`.

    Returns:
        Each matmul, the slot and the operand that it had; and the views of `copy` that are read.
    """
    changed = []
    views: dict[int, Any] = {}
    for ptr, i in operand.readers:
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
    offset = int(source.view_offs) - int(base.view_offs)
    half = {stride: stride // 2 for stride in source.nb}
    if list(copy.nb) != [stride // 2 for stride in strides]:  # rows are padded
        half = {strides[axis]: copy.nb[axis] for axis in reversed(range(4))}
        if offset or any(source.ne[k] > 1 and source.nb[k] not in half for k in range(4)):
            return None
    view = lib.ggml_view_4d(ctx, copy, *source.ne[0:4], 0, 0, 0, offset // 2)
    for axis in range(4):
        view.nb[axis] = half.get(source.nb[axis], source.nb[axis] // 2)
    return view


def _pad_logits(plan: Plan, readers: dict[int, list[Any]]) -> None:
    """Let the rows of logits that losses alone read begin at multiples of a vector."""
    for ptr in plan.order:
        if ptr.op != lib.GGML_OP_MUL_MAT or ptr.ne[0] < _LONG or ptr.ne[0] % _ROW == 0:
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
        strides = [list(view.nb) for view in views]
        for view in views:
            _pad_rows(view)
        if not all(plan.device.supports(each) for each in (ptr, *read)):
            for view, old in zip(views, strides, strict=True):
                for axis in range(4):
                    view.nb[axis] = old[axis]


def _pad_rows(ptr: Any) -> None:
    """Pad the rows of a header to multiples of `_ROW` elements."""
    ptr.nb[1] = ptr.nb[0] * (-(-ptr.ne[0] // _ROW) * _ROW)
    for axis in (2, 3):
        ptr.nb[axis] = ptr.nb[axis - 1] * ptr.ne[axis - 1]


def _unread(plan: Plan, order: list[Any]) -> set[int]:
    """Return the addresses of views, and of results computed again, that nothing reads any more."""
    reads: dict[int, int] = {}
    for ptr in order:
        for source in sources(ptr):
            reads[address(source)] = reads.get(address(source), 0) + (source != ptr)
    unread: set[int] = set()
    for ptr in reversed(order):
        node = plan.recorded.get(address(ptr))
        again = node is not None and plan.header(node) != ptr
        kept = reads.get(address(ptr), 0) or ptr.flags & lib.GGML_TENSOR_FLAG_OUTPUT
        if kept or not (ptr.op in MOVES or again):
            continue
        unread.add(address(ptr))
        for source in sources(ptr):
            reads[address(source)] -= 1
    return unread
