# SPDX-License-Identifier: MIT
"""Effects in the midst of a graph: as soon as they can, and no result differs for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...backend.headers import MOVES, Memory, address, memory_of, sources
from ...backend.library import ffi, lib

__all__ = ["weave"]

# Sources that an op overwrites besides what it is a view of.
_OVERWRITES = {lib.GGML_OP_OPT_STEP_ADAMW: (0, 2, 3), lib.GGML_OP_OPT_STEP_SGD: (0,)}


def _accesses(ptr: Any) -> Iterator[tuple[Memory, bool]]:
    """Each memory that an op reads or writes, and whether it writes."""
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
        """The place after which `ptr` finds what it reads, and takes nothing from anybody."""
        known = [self.done.get(address(s), -1) for s in sources(ptr)]
        for memory, writes in _accesses(ptr):
            known.append((self._touched if writes else self._written).get(memory, -1))
        return max([least, *known])

    def put(self, ptr: Any, at: int) -> None:
        """Note that `ptr` is computed at this place."""
        self.done[address(ptr)] = at
        for memory, writes in _accesses(ptr):
            self._touched[memory] = max(at, self._touched.get(memory, -1))
            if writes:
                self._written[memory] = max(at, self._written.get(memory, -1))


def weave(order: Sequence[Any], effects: Sequence[Any], least: int) -> list[Any]:
    """Put each effect right after the last op that it must wait for.

    That is the last one that makes what the effect reads, or that reads what it overwrites; all
    results are those of doing the effects in their order at the end.

    Args:
        order: headers in the order of computing.
        effects: headers that would follow, sources first.
        least: place in `order` that all effects come after.

    Returns:
        All headers in their new order.
    """
    known = _Order()
    for i, ptr in enumerate(order):
        known.put(ptr, i)
    places = []
    for ptr in effects:
        at = known.earliest(ptr, least)
        known.put(ptr, at)
        places.append(at)
    waiting: dict[int, list[Any]] = {}
    for ptr, at in zip(effects, _delayed(order, effects, places), strict=True):
        waiting.setdefault(at, []).append(ptr)
    woven: list[Any] = []
    for i, ptr in enumerate(order):
        woven.append(ptr)
        woven += waiting.get(i, [])
    return woven


def _delayed(order: Sequence[Any], effects: Sequence[Any], places: Sequence[int]) -> list[int]:
    """The places of effects, where what is made of stored tensors alone waits for its first reader.

    A moment out of its eight-bit blocks could be made at once, but its memory would then be held
    until the gradient comes.
    """
    alone = _made_of_stored(effects)
    writers: dict[Memory, list[int]] = {}
    for i, ptr in enumerate(order):
        for memory, writes in _accesses(ptr):
            if writes:
                writers.setdefault(memory, []).append(i)
    wanted: dict[int, int] = {}
    written: dict[Memory, int] = {}
    late = list(places)
    for k in reversed(range(len(effects))):
        ptr, touched = effects[k], list(_accesses(effects[k]))
        if address(ptr) in alone and address(ptr) in wanted:
            # Nothing that it reads may be overwritten before it.
            bounds = [wanted[address(ptr)]]
            for memory, _ in touched:
                bounds += [i - 1 for i in writers.get(memory, []) if i > places[k]]
                bounds += [written[memory]] if memory in written else []
            late[k] = max(places[k], min(bounds))
        for source in sources(ptr):
            wanted[address(source)] = min(late[k], wanted.get(address(source), late[k]))
        for memory, writes in touched:
            if writes:
                written[memory] = min(late[k], written.get(memory, late[k]))
    return late


def _made_of_stored(effects: Sequence[Any]) -> set[int]:
    """The addresses of effects that write nothing and read stored tensors and one another alone."""
    found: set[int] = set()
    for ptr in effects:
        # ggml_cast has itself as a source.
        others = [s for s in sources(ptr) if s != ptr]
        stored = all(address(s) in found or _is_stored(s) for s in others)
        if stored and not any(writes for _, writes in _accesses(ptr)):
            found.add(address(ptr))
    return found


def _is_stored(ptr: Any) -> bool:
    """Whether it is a stored tensor, or a view of one."""
    root = ptr.view_src if ptr.view_src != ffi.NULL and ptr.op in MOVES else ptr
    return bool(root.buffer != ffi.NULL)
