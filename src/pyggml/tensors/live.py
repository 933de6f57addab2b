# SPDX-License-Identifier: MIT
"""The recorded tensors that the program holds, and the numbers that a graph computed of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Protocol
from weakref import ref

import numpy as np

from ..backend.buffers import Buffer
from ..backend.scopes import in_turn
from .node import Node
from .operators import HIGHER

__all__ = [
    "LIVE",
    "Computed",
    "Memory",
    "overwritten_below",
    "before_write",
    "held_again",
    "hold",
    "is_operand",
    "mark",
    "release",
]

# By the id of the tensor: one that is made later takes the place of a dead one with its id.
LIVE: dict[int, Callable[[], Any]] = {}


class Memory(Protocol):
    """The memory of the stored tensors that numbers were computed from."""

    def meets(self, buffers: Collection[Buffer]) -> bool:
        """Return True if one of some buffers is among it."""


class Computed(Protocol):
    """Numbers of a recorded tensor that a graph has computed.

    Attributes:
        below: the memory that they were computed from; None where it is not known.
    """

    below: Memory | None

    def read(self) -> np.ndarray:
        """Copy them out."""

    def tensor(self) -> Any:
        """Return them as a stored tensor."""


def overwritten_below(shape: tuple[int, ...], origin: tuple[str, int]) -> str:
    """Return what is said of numbers that were recorded before an operand was overwritten."""
    return (
        f"a tensor of shape {shape} that {origin[0]}:{origin[1]} recorded before a tensor below it"
        " was overwritten, as by optimizer.step(); record it again, or .detach() it for its numbers"
        " alone"
    )


def is_operand(node: Node) -> bool:
    """Return True for a node that names the memory of a stored tensor: itself, or as a view."""
    return node.buffer is not None or node.layout.views_stored


def hold(t: Any, operands: Iterable[Node] = ()) -> None:
    """Note that the program holds a recorded tensor.

    Args:
        t: what an op or a call returned, unless that is a view of a stored tensor: it has the
            numbers of that one at any time.
        operands: what the op reads; `is_operand` is true of them.
    """
    LIVE[id(t)] = ref(t)
    for node in operands:
        mark(node)


def mark(operand: Node) -> None:
    """Note that an op reads the memory that an operand names."""
    todo = [operand]
    while todo:
        node = todo.pop()
        if node.buffer is not None:
            node.buffer.is_recorded = True
        else:
            todo += node.srcs if node.call is None else node.operands


def release(t: Any) -> None:
    """Note that a tensor needs not be computed: a graph computes it, or it has no ops any more."""
    LIVE.pop(id(t), None)


def held_again(tensors: Iterable[Any]) -> Callable[[], None]:
    """Return a function of C that holds again what is held now of some tensors."""
    return partial(LIVE.update, {id(t): LIVE[id(t)] for t in tensors if id(t) in LIVE})


def before_write(buffers: Iterable[Buffer]) -> None:
    """Let everything be computed that the program holds and that reads tensors in these buffers.

    A tensor then has the numbers of the moment when it was recorded, whatever is written later.

    Args:
        buffers: a tensor in each is about to be overwritten.
    """
    read = {buffer for buffer in buffers if buffer.is_recorded}
    if not read:
        return
    marks = in_turn([partial(setattr, buffer, "is_recorded", True) for buffer in read])
    try:
        for buffer in read:  # the runs that compute what reads it come here, too
            buffer.is_recorded = False
        held = _held()
        if held:
            HIGHER["end_recordings"](held, read)
    except BaseException:
        marks()  # the next write has to do what this one could not
        raise


def _held() -> list[Any]:
    """Return the recorded tensors that are alive."""
    found = []
    for key, reference in list(LIVE.items()):
        t = reference()
        if t is not None and not t.is_stored:
            found.append(t)
            continue
        now = LIVE.pop(key, None)
        if now is not None and now is not reference:  # that another thread has made meanwhile
            LIVE[key] = now
    return found
