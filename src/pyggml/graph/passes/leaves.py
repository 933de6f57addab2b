# SPDX-License-Identifier: MIT
"""The passes that make ops which follow one another neighbours."""

from __future__ import annotations

from typing import Any

from ...backend.library import ffi, lib
from ..plan import Plan
from .updates import accesses

__all__ = ["leaves_first", "sums_last"]

# With the sums of REPEAT_BACK, the gradient of a norm with gain and bias, and of what is beside it.
_CHAIN = (lib.GGML_OP_REPEAT_BACK, lib.GGML_OP_MUL, lib.GGML_OP_NORM_BACK, lib.GGML_OP_ADD)


def leaves_first(plan: Plan) -> None:
    """Put what is stored before what is computed.

    ggml looks for a chain of ops to compute in one kernel among neighbours, and counts parameters
    as nodes: a norm's weight would stand between the norm and its product with the weight.
    """
    leaves = [ptr for ptr in plan.order if ptr.op == lib.GGML_OP_NONE]
    late = [ptr for ptr in plan.order[plan.n_forward :] if ptr.op == lib.GGML_OP_NONE]
    plan.order = leaves + [ptr for ptr in plan.order if ptr.op != lib.GGML_OP_NONE]
    plan.n_forward += sum(bool(ptr.flags & lib.GGML_TENSOR_FLAG_PARAM) for ptr in late)


def sums_last(plan: Plan) -> None:
    """Put the additions of sums to stored gradients behind the chain that they stand in.

    The gradients of a norm's gain and bias are sums; where gradients are accumulated, each is added
    to what is stored, in the middle of the ops that a GPU computes in one pass.
    """
    order: list[Any] = []
    waiting: list[Any] = []
    for ptr in plan.order[plan.n_forward :]:
        if _adds_sum(ptr, order):
            waiting.append(ptr)
            continue
        if ptr.op not in _CHAIN or any(_must_follow(ptr, each) for each in waiting):
            order += waiting
            waiting = []
        order.append(ptr)
    plan.order[plan.n_forward :] = order + waiting


def _must_follow(ptr: Any, before: Any) -> bool:
    """Return True if one of two ops writes what the other reads or writes."""
    known = list(accesses(before))
    return any(
        memory == other and (writes or also)
        for memory, writes in accesses(ptr)
        for other, also in known
    )


def _adds_sum(ptr: Any, before: list[Any]) -> bool:
    """Return True for the addition, in place, of the sum that was computed right before it."""
    return bool(
        ptr.op == lib.GGML_OP_ADD
        and ptr.view_src != ffi.NULL
        and before
        and ptr.src[1] == before[-1]
        and before[-1].op == lib.GGML_OP_REPEAT_BACK
    )
