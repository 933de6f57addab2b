# SPDX-License-Identifier: MIT
"""Gradients that are added to others: one op that adds, and no second one in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ._lib import ffi, lib
from .order import address

__all__ = ["fold_sums"]


# The gradients that can be added to what is there, as GGML_OP: each has a third source then.
_ADDING = (lib.GGML_OP_OUT_PROD, lib.GGML_OP_GET_ROWS_BACK)


def fold_sums(order: Sequence[Any], supports: Callable[[Any], bool]) -> list[Any]:
    """Make a product, or rows, and the ADD that alone reads them one op that adds in place.

    Args:
        order: headers in the order of computing; those of the sums are changed.
        supports: whether the device computes an op.

    Returns:
        The headers without the products.

    Source: ggml_out_prod_acc, ggml_get_rows_back_acc (of this project's patches).
    """
    uses = Counter(
        address(ptr.src[i])
        for ptr in order
        for i in range(lib.GGML_MAX_SRC)
        if ptr.src[i] != ffi.NULL
    )

    def alone(ptr: Any) -> bool:
        return uses[address(ptr)] == 1 and not ptr.flags & lib.GGML_TENSOR_FLAG_OUTPUT

    folded: set[int] = set()
    gone: set[int] = set()
    for ptr in order:
        if ptr.op != lib.GGML_OP_ADD:
            continue
        there, addend = ptr.src[0], ptr.src[1]
        if addend.op not in _ADDING or addend.src[2] != ffi.NULL or not alone(addend):
            continue
        # In place already, as a stored gradient is, or a result that nobody else reads.
        own = there.op in _ADDING and alone(there)
        own = own and (there.view_src == ffi.NULL or address(there) in folded)
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
            folded.add(address(ptr))
            gone.add(address(addend))
        else:
            ptr[0] = before[0]
    return [ptr for ptr in order if address(ptr) not in gone]
