# SPDX-License-Identifier: MIT
"""The pass that rounds an operand of several matmuls to bf16 once, not in each of them."""

from __future__ import annotations

from typing import Any

from ...backend.headers import MOVES, Memory, address, memory_of, operands, own_header, sources
from ...backend.library import ffi, lib
from ..plan import Plan
from .recompute import is_cheap
from .updates import accesses

__all__ = ["round_once"]

_MATMULS = (lib.GGML_OP_MUL_MAT, lib.GGML_OP_OUT_PROD)
_LOSSES = (lib.GGML_OP_CROSS_ENTROPY_ROWS, lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK)
# Where the permissions of ggml_prec_set_src begin among the parameters of a matmul.
_PERMISSIONS = 2
# Matmuls with fewer columns are computed in f32, by kernels that read each number once.
_LEAST_COLUMNS = 16
# Rows of logits of at least so many classes are padded to a multiple of 128 bytes in bf16.
_LONG = 1024
_ROW = 64


class _Operand:
    """A tensor, the matmuls that read it before it is written to again, and its bf16 copy."""

    def __init__(self, base: Any):
        self.base = base
        self.readers: list[tuple[Any, int]] = []


def round_once(plan: Plan) -> None:
    """Give matmuls that may round a common f32 operand one bf16 copy of it.

    A weight is multiplied in the forward and in the backward, an activation and the gradient of a
    result twice as well. A GPU would round each of them in front of each matmul. An activation that
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
    before: dict[int, list[Any]] = {}  # what to compute right before an op, by its address
    after: dict[int, list[Any]] = {}
    for operand in _operands(plan):
        if not _write_rounded(plan, operand, readers):
            first, made = _round(plan, operand)
            # Behind its base a copy is part of a kernel that computes both.
            at = address(operand.base)
            beside, at = (after, at) if at in computed else (before, address(first))
            beside.setdefault(at, []).extend(made)
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
    """Return what more than one matmul may round, in the order of the first of them."""
    current: dict[tuple[Memory, int], _Operand] = {}
    found: list[_Operand] = []
    for ptr in plan.order:
        for i in range(2) if _may_round(ptr) else ():
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


def _may_round(ptr: Any) -> bool:
    """Return True for a matmul of f32 operands that may both be rounded to bf16."""
    if ptr.op not in _MATMULS or ptr.src[1].ne[1] < _LEAST_COLUMNS:
        return False
    levels = [ptr.op_params[_PERMISSIONS + i] for i in range(2)]
    types = [ptr.src[i].type for i in range(2)]
    return all(t == lib.GGML_TYPE_F32 for t in types) and min(levels) >= lib.GGML_PREC_BF16


def _round(plan: Plan, operand: _Operand) -> tuple[Any, list[Any]]:
    """Let the readers of an operand read a copy; return the first, and what makes the copy."""
    base = operand.base
    copy = lib.ggml_cast(plan.ctx, base, lib.GGML_TYPE_BF16)
    if base.op == lib.GGML_OP_GELU_BACK:
        # One kernel computes both: the copy must not lie where GELU's operand is, which nothing
        # else reads afterwards.
        copy.src[2] = base.src[1]
    changed, views = _read_instead(plan, operand, copy, list(base.nb))
    if len(changed) > 1 and plan.device.supports(copy):
        return changed[0][0], [copy, *views]
    for ptr, i, source in changed:
        ptr.src[i] = source
    return operand.readers[0][0], []


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
