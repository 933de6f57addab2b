# SPDX-License-Identifier: MIT
"""The pass that puts stored tensors first, so that ops which follow one another are neighbours."""

from __future__ import annotations

from ...backend.library import lib
from ..plan import Plan

__all__ = ["leaves_first"]


def leaves_first(plan: Plan) -> None:
    """Put what is stored before what is computed.

    ggml looks for a chain of ops to compute in one kernel among neighbours, and counts parameters
    as nodes: a norm's weight would stand between the norm and its product with the weight.
    """
    leaves = [ptr for ptr in plan.order if ptr.op == lib.GGML_OP_NONE]
    late = [ptr for ptr in plan.order[plan.n_forward :] if ptr.op == lib.GGML_OP_NONE]
    plan.order = leaves + [ptr for ptr in plan.order if ptr.op != lib.GGML_OP_NONE]
    plan.n_forward += sum(bool(ptr.flags & lib.GGML_TENSOR_FLAG_PARAM) for ptr in late)
