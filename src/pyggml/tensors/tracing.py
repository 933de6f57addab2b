# SPDX-License-Identifier: MIT
"""Traces: functions recorded to run many times, whose inputs must not be read or written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backend.scopes import Scope, Scopes
from ..errors import RecordingError
from .node import Node, NodeTable, caller

__all__ = [
    "Trace",
    "check_read",
    "check_write",
    "draw_later",
    "draw_of",
    "draws_later",
    "is_input",
    "is_tracing",
    "note_mode",
    "outer",
]


_traces = Scopes()
_DRAWS: NodeTable[Callable[[], np.ndarray]] = NodeTable()


class Trace(Scope):
    """Trace the function that is recorded inside `with`: its inputs change in later runs.

    Args:
        who: what records, for messages.
        inputs: stored nodes that are overwritten before each run.
        redraws: random numbers that the function asks for are drawn before each run.

    Attributes:
        modes: the modules whose mode the function has read, by their id.

    Example:
        >>> x = tensor([1.0])
        >>> with Trace("compile", [x.node]):
        ...     y = x * 2.0
    """

    def __init__(self, who: str, inputs: Iterable[Node], redraws: bool = True):
        super().__init__(_traces)
        self.who = who
        self.inputs = {id(node): node for node in inputs}
        self.redraws = redraws
        self.modes: dict[int, Any] = {}

    def feeds(self, node: Node) -> bool:
        """Return True for an input, and for what is computed from the inputs."""
        seen: set[int] = set()
        todo = [node]
        while todo:
            at = todo.pop()
            if id(at) in self.inputs:
                return True
            if id(at) not in seen:
                seen.add(id(at))
                todo += at.srcs
        return False


def outer() -> str | None:
    """Return the name of the innermost trace on this thread; None when there is none."""
    trace: Trace | None = _traces.innermost()
    return None if trace is None else trace.who


def is_tracing() -> bool:
    """Return True inside of a function that this thread traces."""
    return bool(_traces.entries)


def note_mode(module: Any) -> None:
    """Note for the innermost trace that what it records depends on the mode of a module."""
    trace: Trace | None = _traces.innermost()
    if trace is not None:
        trace.modes[id(module)] = module


def draws_later() -> bool:
    """Return True inside of a function whose random numbers are drawn before each run."""
    trace: Trace | None = _traces.innermost()
    return trace is not None and trace.redraws


def draw_later(node: Node, draw: Callable[[], np.ndarray]) -> None:
    """Let each run of a graph that reads a stored node begin with a call that draws its numbers."""
    trace: Trace | None = _traces.innermost()
    assert trace is not None
    trace.inputs[id(node)] = node
    _DRAWS[node] = draw


def draw_of(node: Node) -> Callable[[], np.ndarray] | None:
    """Return what draws the numbers of a node before each run, if anything does."""
    return _DRAWS.get(node)


def is_input(node: Node) -> bool:
    """Return True for an input of a function that this thread traces."""
    return any(id(node) in trace.inputs for trace in _traces)


def check_read(node: Node) -> None:
    """Raise for reading what a traced function computes from its inputs.

    Raises:
        RecordingError: the numbers would be those of the recording, in every later run.
    """
    for trace in _traces:
        if trace.feeds(node):
            what = "an input" if is_input(node) else "what is computed from the inputs"
            raise RecordingError(
                f"{trace.who}: the function must not read the numbers of {what} while it is"
                f" recorded, as they would stay the same in every later run; got a read of shape"
                f" {node.shape} at {':'.join(map(str, caller()))} (numpy, item, float, if, …);"
                " return the tensor and read it after the call, or compute with ops alone, such"
                " as ops.step for a choice"
            )


def check_write(who: str, node: Node) -> None:
    """Raise for overwriting the inputs of a traced function.

    Raises:
        RecordingError: it would be written once, and not in later runs.
    """
    for trace in _traces:
        if id(node) in trace.inputs:
            raise RecordingError(
                f"{who}: the function that {trace.who} records must not write its inputs;"
                f" got one of shape {node.shape} at {':'.join(map(str, caller()))};"
                " compute a new tensor and return it"
            )
