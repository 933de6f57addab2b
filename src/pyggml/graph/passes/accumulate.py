# SPDX-License-Identifier: MIT
"""The pass that writes and adds gradients in place, so that no second one is in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...backend.headers import MOVES, address, operands
from ...backend.library import ffi, lib
from ..plan import Plan

__all__ = ["accumulate_in_place"]

# The gradients that can be added to what is there, as GGML_OP: each has a third source then.
_ADDING = (lib.GGML_OP_OUT_PROD, lib.GGML_OP_GET_ROWS_BACK)


def accumulate_in_place(plan: Plan) -> None:
    """Fuse each matmul with its addition to a gradient; with `overwrite`, it overwrites instead."""
    if plan.loss is None:
        return
    # Updates, which are placed later, read gradients; ggml gives several tensors the same one.
    read = Counter(address(plan.gradient(param.ptr)) for param, _ in plan.transient.values())
    plan.order = _add_in_place(plan.order, _uses(plan.order) + read, plan.device.supports)
    if plan.overwrite:
        plan.order, plan.cleared = _write_first(
            plan.order, plan.totals(), _uses(plan.order) + read, plan.device.computes_into
        )


def _add_in_place(
    order: Sequence[Any], uses: Counter[int], supports: Callable[[Any], bool]
) -> list[Any]:
    """Make a matmul, or rows, and the ADD that alone reads them one op that adds in place.

    Args:
        order: headers in the order of computing; those of the sums are changed.
        uses: how often each is read.
        supports: whether the device computes an op.

    Returns:
        The headers without the matmuls.

    Source: ggml_out_prod_acc, ggml_get_rows_back_acc (of this project's patches).
    """

    def alone(ptr: Any) -> bool:
        return uses[address(ptr)] == 1 and not ptr.flags & lib.GGML_TENSOR_FLAG_OUTPUT

    added: set[int] = set()
    gone: set[int] = set()
    for ptr in order:
        if address(ptr.view_src) in added:
            ptr.view_src = ptr.view_src.view_src  # a view names the tensor whose memory it shows
        if ptr.op != lib.GGML_OP_ADD:
            continue
        there, addend = ptr.src[0], ptr.src[1]
        if addend.op not in _ADDING or addend.src[2] != ffi.NULL or not alone(addend):
            continue
        # In place already, as a stored gradient is, or a result that nobody else reads.
        own = there.op in _ADDING and alone(there)
        own = own and (there.view_src == ffi.NULL or address(there) in added)
        if ptr.view_src == ffi.NULL and not own:
            continue
        whole = lib.ggml_are_same_shape(there, addend) and lib.ggml_is_contiguous(there)
        if not whole or there.type != lib.GGML_TYPE_F32:
            continue
        before = ffi.new("struct ggml_tensor *", ptr[0])
        ptr.op = addend.op
        ptr.src[0], ptr.src[1], ptr.src[2] = addend.src[0], addend.src[1], there
        ffi.memmove(ptr.op_params, addend.op_params, ffi.sizeof(addend.op_params))
        if ptr.view_src == ffi.NULL:
            ptr.view_src = there.view_src if there.view_src != ffi.NULL else there
        if supports(ptr):
            added.add(address(ptr))
            gone.add(address(addend))
        else:
            ptr[0] = before[0]
    return [ptr for ptr in order if address(ptr) not in gone]


def _write_first(
    order: Sequence[Any],
    totals: Sequence[Any],
    uses: Counter[int],
    supports: Callable[[Any], bool],
) -> tuple[list[Any], list[Any]]:
    """Let the first addend of each total be written over it, not added to what is there.

    Args:
        order: headers in the order of computing, sums in place; some are changed.
        totals: stored tensors, to each of which addends are added in place.
        uses: how often each header is read.
        supports: whether the device computes an op.

    Returns:
        The headers that are left, and the totals that must be zero before they are computed.
    """
    waiting = {address(total): total for total in totals}
    stands: dict[int, Any] = {}  # what is read in the place of a sum that is no more
    zeros, left = [], []
    for ptr in order:
        for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
            if source and address(source) in stands:
                ptr.src[i] = stands[address(source)]
        read = set(map(address, operands(ptr))) & waiting.keys()
        if not read:
            left.append(ptr)
            continue
        total = waiting.pop(read.pop())
        zeros += [waiting.pop(at) for at in read]
        addend = _moved(ptr, total, uses, supports)
        if addend is not None:
            stands[address(ptr)] = addend
            continue
        left.append(ptr)
        if not _written(ptr, total, supports):
            zeros.append(total)
    return left, [*zeros, *waiting.values()]


def _uses(order: Sequence[Any]) -> Counter[int]:
    """Count how often each tensor is an operand."""
    return Counter(address(source) for ptr in order for source in operands(ptr))


def _is_sum(ptr: Any, total: Any) -> bool:
    """Return True for an addition of an equal shape to the total, in place."""
    return bool(
        ptr.op == lib.GGML_OP_ADD
        and ptr.view_src == total
        and ptr.src[0] == total
        and ptr.src[1] != total
        and ptr.type == ptr.src[1].type == lib.GGML_TYPE_F32
        and lib.ggml_are_same_shape(total, ptr.src[1])
    )


def _moved(ptr: Any, total: Any, uses: Counter[int], supports: Callable[[Any], bool]) -> Any:
    """The addend of a sum, which is computed in the total's memory now; None if it cannot be."""
    if not _is_sum(ptr, total):
        return None
    addend = ptr.src[1]
    alone = uses[address(addend)] == 1 and not addend.flags & lib.GGML_TENSOR_FLAG_OUTPUT
    own = addend.op not in MOVES and addend.view_src == ffi.NULL and addend.data == ffi.NULL
    if not (alone and own and lib.ggml_is_contiguous(addend)):
        return None
    addend.view_src, addend.view_offs, addend.data = total, 0, total.data
    if supports(addend):
        return addend
    addend.view_src = addend.data = ffi.NULL
    return None


def _written(ptr: Any, total: Any, supports: Callable[[Any], bool]) -> bool:
    """Let an op that adds to the total in place write over it; False where it must add."""
    before = ffi.new("struct ggml_tensor *", ptr[0])
    if ptr.op in _ADDING and ptr.src[2] == total and ptr.view_src == total:
        ptr.src[2] = ffi.NULL
    elif _is_sum(ptr, total):
        ptr.op, ptr.src[0], ptr.src[1] = lib.GGML_OP_CPY, ptr.src[1], total
    else:
        return False
    if not supports(ptr):
        ptr[0] = before[0]
        return False
    return True
