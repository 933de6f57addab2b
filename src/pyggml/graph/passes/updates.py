# SPDX-License-Identifier: MIT
"""The pass that runs each update as early as possible without changing a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...backend.headers import MOVES, Memory, address, memory_of, sources
from ...backend.library import ffi, lib
from ..plan import Plan

__all__ = ["accesses", "place_updates"]

# Sources that an op overwrites besides what it is a view of.
_OVERWRITES = {lib.GGML_OP_OPT_STEP_ADAMW: (0, 2, 3), lib.GGML_OP_OPT_STEP_SGD: (0,)}


def place_updates(plan: Plan) -> None:
    """Put updates right after the gradients that they need, or else at the end."""
    if not plan.transient:
        plan.order = [*plan.order, *plan.copy(plan.updates)]
        return
    updates = [*_gradients(plan), *plan.copy(plan.updates)]
    plan.order = _place(plan.order, updates, plan.n_forward - 1)


def _gradients(plan: Plan) -> list[Any]:
    """Put the backward's results in the place of the placeholders; return the ops added."""
    viewed = {address(node.ptr.view_src) for node in plan.updates}
    added = []
    for param, grad in plan.transient.values():
        ptr = plan.gradient(param.ptr)
        # ggml keeps no view of an output, and knows no views of views.
        own = id(grad) in plan.outputs or address(grad.ptr) in viewed
        if ptr == ffi.NULL:  # the loss does not depend on it
            ptr = lib.ggml_fill(plan.ctx, param.ptr, 0.0)
            added.append(ptr)
        elif own or not lib.ggml_is_contiguous(ptr):
            ptr = lib.ggml_cont(plan.ctx, ptr)
            added.append(ptr)
        if id(grad) in plan.outputs:
            lib.ggml_set_output(ptr)
        plan.headers[address(grad.ptr)] = ptr
    return added


def accesses(ptr: Any) -> Iterator[tuple[Memory, bool]]:
    """Yield each memory that an op reads or writes, and whether it writes."""
    written = _OVERWRITES.get(ptr.op, ())
    for i, source in enumerate(ffi.unpack(ptr.src, lib.GGML_MAX_SRC)):
        if source:
            yield memory_of(source), i in written
    if ptr.view_src != ffi.NULL and ptr.op not in MOVES:
        yield memory_of(ptr), True


class _Order:
    """When each op is done, and the last access to each memory so far."""

    def __init__(self) -> None:
        self.done: dict[int, int] = {}
        self._touched: dict[Memory, int] = {}
        self._written: dict[Memory, int] = {}

    def earliest(self, ptr: Any, least: int) -> int:
        """Return the place after which `ptr` may be computed."""
        known = [self.done.get(address(s), -1) for s in sources(ptr)]
        for memory, writes in accesses(ptr):
            known.append((self._touched if writes else self._written).get(memory, -1))
        return max([least, *known])

    def put(self, ptr: Any, at: int) -> None:
        """Note that `ptr` is computed at this place."""
        self.done[address(ptr)] = at
        for memory, writes in accesses(ptr):
            self._touched[memory] = max(at, self._touched.get(memory, -1))
            if writes:
                self._written[memory] = max(at, self._written.get(memory, -1))


def _place(order: Sequence[Any], updates: Sequence[Any], least: int) -> list[Any]:
    """Put each update right after the last op that it must wait for.

    That is the last one that makes what the update reads, or that reads what it overwrites; all
    results are those of doing the updates in their order at the end.

    Args:
        order: headers in the order of computing.
        updates: headers that would follow, sources first.
        least: place in `order` that all updates come after.

    Returns:
        All headers in their new order.
    """
    known = _Order()
    for i, ptr in enumerate(order):
        known.put(ptr, i)
    places = []
    for ptr in updates:
        at = known.earliest(ptr, least)
        known.put(ptr, at)
        places.append(at)
    waiting: dict[int, list[Any]] = {}
    for ptr, at in zip(updates, _deferred(order, updates, places), strict=True):
        waiting.setdefault(at, []).append(ptr)
    placed: list[Any] = []
    for i, ptr in enumerate(order):
        placed.append(ptr)
        placed += waiting.get(i, [])
    return placed


def _deferred(order: Sequence[Any], updates: Sequence[Any], places: Sequence[int]) -> list[int]:
    """Defer updates that are made of stored tensors alone to their first reader; return the places.

    A moment out of its eight-bit blocks could be made at once, but its memory would then be held
    until the gradient comes.
    """
    alone = _made_of_stored(updates)
    writers: dict[Memory, list[int]] = {}
    for i, ptr in enumerate(order):
        for memory, writes in accesses(ptr):
            if writes:
                writers.setdefault(memory, []).append(i)
    wanted: dict[int, int] = {}
    written: dict[Memory, int] = {}
    deferred = list(places)
    for k in reversed(range(len(updates))):
        ptr, touched = updates[k], list(accesses(updates[k]))
        if address(ptr) in alone and address(ptr) in wanted:
            # Nothing that it reads may be overwritten before it.
            bounds = [wanted[address(ptr)]]
            for memory, _ in touched:
                bounds += [i - 1 for i in writers.get(memory, []) if i > places[k]]
                bounds += [written[memory]] if memory in written else []
            deferred[k] = max(places[k], min(bounds))
        for source in sources(ptr):
            wanted[address(source)] = min(deferred[k], wanted.get(address(source), deferred[k]))
        for memory, writes in touched:
            if writes:
                written[memory] = min(deferred[k], written.get(memory, deferred[k]))
    return deferred


def _made_of_stored(updates: Sequence[Any]) -> set[int]:
    """Return the addresses of updates that write nothing and read stored tensors alone."""
    found: set[int] = set()
    for ptr in updates:
        # ggml_cast has itself as a source.
        others = [s for s in sources(ptr) if s != ptr]
        stored = all(address(s) in found or _is_stored(s) for s in others)
        if stored and not any(writes for _, writes in accesses(ptr)):
            found.add(address(ptr))
    return found


def _is_stored(ptr: Any) -> bool:
    """Return True for a stored tensor, or a view of one."""
    root = ptr.view_src if ptr.view_src != ffi.NULL and ptr.op in MOVES else ptr
    return bool(root.buffer != ffi.NULL)
