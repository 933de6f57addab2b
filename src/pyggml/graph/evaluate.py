# SPDX-License-Identifier: MIT
"""Computing recorded tensors: when they are read, and before a tensor that they read is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from ..backend.buffers import Buffer
from ..backend.device import COMPUTE_LOCK
from ..errors import RecordingError
from ..tensors.node import Node
from ..tensors.tensor import Tensor
from .graph import Graph
from .held import Held, Late, computed_below
from .once import run_once
from .walk import check_current, sources_of, walk, walk_calls

__all__ = ["end_recordings", "evaluate"]

_T = TypeVar("_T")


def evaluate(t: Tensor) -> np.ndarray:
    """Compute a recorded tensor now.

    Raises:
        RecordingError: a tensor that it depends on was written since.
    """
    with COMPUTE_LOCK:
        if t.is_computed:  # by another thread, which wrote below it meanwhile
            return t.numpy()

        def give(graph: Graph, outputs: list[Tensor]) -> np.ndarray:
            if not t.node.is_view_of_stored:
                t.keep(Late(graph, outputs[0]))  # should there be no memory to copy them out
            return graph.read(outputs[0])

        return _run([t], give)


def _run(tensors: Sequence[Tensor], give: Callable[[Graph, list[Tensor]], _T]) -> _T:
    """Compute recorded tensors together, and carry out what is attached to them.

    Args:
        tensors: what is computed.
        give: gives them their numbers after the run: of the graph's outputs, which are others, as
            these tensors may end.
    """
    with COMPUTE_LOCK:  # another thread must not write what they read after the check
        known, nodes = _below(tensors)
        check_current("numpy", nodes)
        outputs = [Tensor(t.node, t.dtype) for t in tensors]
        make = partial(Graph, outputs, known=known)
        return run_once(tensors, nodes, make, lambda graph: give(graph, outputs))


def _below(tensors: Sequence[Tensor]) -> tuple[dict[Tensor, Tensor], list[Node]]:
    """Return the results with numbers below recorded tensors, and the nodes to compute."""
    known = computed_below(t.node for t in tensors)
    return known, walk([t.node for t in tensors], {id(each.node) for each in known})


def end_recordings(held: Sequence[Tensor], buffers: Collection[Buffer]) -> None:
    """End the recorded tensors that depend on stored ones which are about to be written.

    Those without numbers are computed, all in one graph. Then each keeps its numbers alone.

    Args:
        held: recorded tensors.
        buffers: the memory that is written.
    """
    ended, others = [], []
    for t in held:
        below = t.computed_from
        if below is None:
            others.append(t)
        elif below.meets(buffers):
            ended.append(t)
    if others:
        ended += _readers(others, buffers)
    waiting = [t for t in ended if not t.is_computed]
    now = Held()

    def give(graph: Graph, outputs: list[Tensor]) -> None:
        now.hand_out(graph, waiting, outputs)

    try:
        if waiting:
            _run(waiting, give)
    except RecordingError:
        # Another thread recorded them while what they read was written; it is told when it reads.
        stale = {id(t) for t in waiting if not _is_current(t)}
        ended, waiting = ([t for t in ts if id(t) not in stale] for ts in (ended, waiting))
        if waiting:
            _run(waiting, give)
    now.settle()
    for t in ended:
        t.end()


def _is_current(t: Tensor) -> bool:
    """Return True if nothing that a recorded tensor reads was written since."""
    try:
        check_current("numpy", _below([t])[1])
    except RecordingError:
        return False
    return True


def _readers(tensors: Sequence[Tensor], buffers: Collection[Buffer]) -> list[Tensor]:
    """Return the recorded tensors that read buffers, and that can be computed at any time."""
    reading: set[Node] = set()
    bound: set[Node] = set()  # to what writes in place, or to gradients that only a graph has
    for node in walk_calls(*(t.node for t in tensors)):
        if node.buffer is not None:
            if node.buffer in buffers:
                reading.add(node)
            continue
        sources = sources_of(node)
        if not reading.isdisjoint(sources):
            reading.add(node)
        in_place = node.layout.views_stored and not node.is_view_of_stored
        if in_place or not sources or not bound.isdisjoint(sources):
            bound.add(node)
    return [t for t in tensors if t.node in reading and t.node not in bound]
