# SPDX-License-Identifier: MIT
"""The pass that rounds an operand of matmuls and attention to bf16 once, not in each of them."""

from __future__ import annotations

from typing import Any

from ...backend.headers import MOVES, Memory, address, memory_of, operands, own_header, sources
from ...backend.library import ffi, lib
from ..plan import Plan
from .logits import pad_logits, write_gradients
from .operands import MATMULS, Reader, computes_rounded, read_instead, rounded_slots
from .recompute import is_cheap
from .updates import accesses

__all__ = ["round_once"]


class _Operand:
    """A tensor, and the ops that may round it, each with the slot where they read it."""

    def __init__(self, base: Any):
        self.base = base
        self.readers: list[Reader] = []


def round_once(plan: Plan) -> None:
    """Give ops that may round a common f32 operand one bf16 copy of it.

    A weight is multiplied in the forward and in the backward, an activation and the gradient of a
    result twice as well; attention reads q, k and v in both. A GPU would round each of them in
    front of each op. What only such ops read is kept as a copy alone. An activation that
    is marked with `recompute` is not computed again for a matmul: its copy is kept. The gradient of
    logits is written in bf16. Its rows and those of logits begin at multiples of 128 bytes, so that
    cuBLAS reads and writes whole vectors of bf16, or of f32 that it may round to TF32.

    Source: torch.autocast, which keeps the rounded weights of a step.
    """
    if not plan.device.rounds_operands:
        return
    readers: dict[int, list[Any]] = {}
    for ptr in plan.order:
        for source in operands(ptr):
            readers.setdefault(address(source), []).append(ptr)
    pad_logits(plan, readers)
    computed = {address(ptr) for ptr in plan.order if ptr.op != lib.GGML_OP_NONE}
    zeros = _zeros(plan)
    before: dict[int, list[Any]] = {}  # what to compute right before an op, by its address
    after: dict[int, list[Any]] = {}
    several = _operands(plan)
    rounded = write_gradients(plan, readers)
    for operand in several:
        if address(operand.base) in rounded:
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
        slots = rounded_slots(ptr, lib.GGML_PREC_BF16)
        if slots and ptr.op not in MATMULS and not computes_rounded(plan, ptr):
            slots = range(0)  # the device would take k and v in bf16, but compute in f32
        for i in slots:
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
    changed, views = read_instead(plan, operand.readers, copy, list(base.nb))
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
