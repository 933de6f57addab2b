# SPDX-License-Identifier: MIT
"""The pass that inserts the backwards of custom functions into the gap in ggml's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...backend.headers import address, sources
from ...backend.library import ffi, lib
from ...tensors.create import zeros
from ...tensors.node import Node
from ..plan import Plan
from ..pullbacks import Pullback

__all__ = ["splice_custom_backwards"]


def splice_custom_backwards(plan: Plan) -> None:
    """Put the recorded backwards before the first op that reads their results."""
    custom = plan.custom
    if not custom.pullbacks:
        return
    first = _first_readers(plan.order, custom.stand_ins.values())
    waiting: dict[int, list[Any]] = {}
    # The last function of the forward is the first of the backward.
    for pullback, nodes in reversed(list(zip(custom.pullbacks, custom.computed, strict=True))):
        added = _seed(plan, pullback, nodes)
        ends = [custom.stand_ins[address(plan.header(gate))] for gate in pullback.gates]
        places: dict[int, Any] = {}
        for result, stand_in in zip(pullback.results, ends, strict=True):
            if _has_memory(result) and address(result.ptr) not in plan.headers:
                places.setdefault(address(result.ptr), stand_in)
        added += plan.copy([n for n in nodes if address(n.ptr) not in plan.headers], places)
        for result, stand_in in zip(pullback.results, ends, strict=True):
            if places.get(address(result.ptr)) != stand_in:
                # Memory of another's: a view, the seed, or one gradient for two arguments.
                source = lib.ggml_cont(plan.ctx, plan.header(result))
                ffi.memmove(stand_in, source, ffi.sizeof("struct ggml_tensor"))
                added.append(stand_in)
        at = min(first.get(address(stand_in), len(plan.order)) for stand_in in ends)
        waiting.setdefault(at, []).extend(added)
    made: list[Any] = []
    for i, ptr in enumerate(plan.order):
        made += waiting.get(i, [])
        made.append(ptr)
    plan.order = made + waiting.get(len(plan.order), [])


def _first_readers(order: Iterable[Any], stand_ins: Iterable[Any]) -> dict[int, int]:
    """Find where each stand-in, by its address, is read first."""
    made = {address(stand_in) for stand_in in stand_ins}
    first: dict[int, int] = {}
    for i, ptr in enumerate(order):
        for source in map(address, sources(ptr)):
            if source in made:
                first.setdefault(source, i)
    return first


def _seed(plan: Plan, pullback: Pullback, nodes: Iterable[Node]) -> list[Any]:
    """Put the gradients of the results in the place of the seeds; return the ops that this adds."""
    used = {id(source) for node in nodes for source in node.srcs}
    used |= {id(result) for result in pullback.results}
    added = []
    for out, seed in zip(pullback.outs, pullback.seeds, strict=True):
        if id(seed) not in used:
            continue
        here = plan.headers.get(address(out.ptr))
        grad = ffi.NULL if here is None else plan.gradient(here)
        if grad == ffi.NULL:  # the loss does not depend on it
            plan.custom.zeros.append(zeros(out.shape, device=out.device))
            grad = plan.custom.zeros[-1].ptr
        elif not lib.ggml_is_contiguous(grad):
            grad = lib.ggml_cont(plan.ctx, grad)
            added.append(grad)
        plan.headers[address(seed.ptr)] = grad
    return added


def _has_memory(node: Node) -> bool:
    """Return True if an op makes the numbers, in memory that is no other's."""
    recorded = node.buffer is None and node.ptr.op != lib.GGML_OP_NONE
    return recorded and bool(node.ptr.view_src == ffi.NULL)
