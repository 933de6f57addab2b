# SPDX-License-Identifier: MIT
"""Functions that are recorded once for each shape of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..backend.device import COMPUTE_LOCK
from ..backend.lru import LRUCache
from ..checks import function
from ..ops.dropout import DropoutStream
from ..tensors.autocast import rounding
from ..tensors.create import tensor
from ..tensors.node import Node
from ..tensors.operators import register
from ..tensors.tensor import Tensor
from ..tensors.tracing import Trace, outer
from ..tensors.truth import is_mask
from .backward import backward
from .backward_checks import end_gradients
from .evaluate import end_recordings, evaluate
from .graph import Graph
from .graph_cache import MAX_BYTES, MAX_GRAPHS, copy_in, graph_cache
from .reentry import NoReentry
from .walk import leaves

__all__ = ["Compiled", "compile"]


def _as_list(outputs: Any) -> list[Tensor]:
    flat = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not all(isinstance(t, Tensor) for t in flat):
        raise TypeError("compile: the function must return a Tensor or a list of them")
    return flat


@dataclass(eq=False)
class _Plan:
    """One recording: the inputs and outputs, the graph, and the stored nodes that it reads."""

    inputs: list[Tensor]
    outputs: Any
    graph: Graph
    below: list[Node]

    def size_bytes(self) -> int:
        """Return the bytes that keeping it takes."""
        return self.graph.kept_bytes + sum(t.nbytes for t in self.inputs)


class Compiled:
    """A function recorded once for each shape of its inputs; see `compile`."""

    def __init__(
        self, fn: Callable[..., Any], max_graphs: int = MAX_GRAPHS, max_bytes: int = MAX_BYTES
    ):
        self._fn = fn
        self._plans: LRUCache[_Plan] = graph_cache(
            "compile",
            _Plan.size_bytes,
            max_graphs,
            max_bytes,
            "pad the inputs to fewer shapes, or raise max_graphs or max_bytes",
        )
        self._dropout = DropoutStream()
        self._modes: dict[int, Any] = {}
        self._runs = 0
        self._once = NoReentry("compile")

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self._fn,)  # a copy records anew

    def __getattr__(self, name: str) -> Any:
        """Return what the function or module has: `parameters`, `eval`, `state_dict`, …"""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._fn, name)

    def _key(self, given: list[Tensor]) -> tuple[Any, ...]:
        """Return what a recording depends on: the shapes, and the modes of the modules in it."""
        modes = (module.training for module in self._modes.values())
        shapes = ((t.shape, t.dtype, t.device.name, is_mask(t.node)) for t in given)
        return (rounding(), *shapes, *modes)

    def __call__(self, *args: Any) -> Any:
        """Run the plan for these shapes, recording it first if it is new."""
        given = [a if isinstance(a, Tensor) else tensor(a) for a in args]
        if outer() is not None:  # a part of what records, with its gradients
            outputs = self._fn(*given)
            _as_list(outputs)
            return outputs
        arrays = [t.numpy() for t in given]
        with COMPUTE_LOCK:  # another thread's call must not record or write between
            plan = self._plans.get(self._key(given))
            if plan is None or not plan.graph.is_current:
                plan = self._record(given)
                self._plans.put(self._key(given), plan)
            self._once.enter()
            try:
                copy_in("compile: args", plan.inputs, arrays)
                self._dropout.seek(self._runs)
                self._runs += 1
                plan.graph.run()
                results = [plan.graph.fetch(t) for t in _as_list(plan.outputs)]
            finally:
                self._once.leave()
        end_gradients("compile", results, [*plan.below, *(t.node for t in given)])
        return results[0] if isinstance(plan.outputs, Tensor) else type(plan.outputs)(results)

    def _record(self, given: list[Tensor]) -> _Plan:
        """Record the function for inputs like these."""
        inputs = [tensor(t) for t in given]
        trace = Trace("compile", [t.node for t in inputs])
        with self._dropout, trace:
            outputs = self._fn(*inputs)
        self._modes.update(trace.modes)
        flat = _as_list(outputs)
        return _Plan(inputs, outputs, Graph(flat), leaves(t.node for t in flat))


def compile(
    fn: Callable[..., Any], max_graphs: int = MAX_GRAPHS, max_bytes: int = MAX_BYTES
) -> Compiled:
    """Record a function once per shape of its inputs; later calls only copy inputs and compute.

    Args:
        fn: takes tensors, returns a tensor or a list or tuple of them. What it reads besides its
            arguments (parameters) is read anew at each call, and random numbers are drawn anew;
            Python code in it runs only when recording. It is recorded anew where `train()` or
            `eval()` changed the mode of a module in it, but not where an attribute, a global or
            a parameter became another object. It must not read what depends on its arguments.
        max_graphs: graphs that are kept, one for each shape of the inputs; beyond this number the
            one used longest ago is dropped, and recorded anew when its shape comes again.
        max_bytes: memory that these graphs may take, likewise.

    Warns:
        RuntimeWarning: a graph is dropped for the first time.

    Returns:
        A callable that takes tensors or arrays and returns stored tensors. Gradients do not come
        back through these; called by a function that is recorded itself, it is a part of that one.

    Example:
        >>> double = compile(lambda x: x * 2)
        >>> double([1.0, 2.0]).tolist()
        [2.0, 4.0]
    """
    return Compiled(function("compile", "fn", fn, "tensors -> tensors"), max_graphs, max_bytes)


register("evaluate", evaluate)
register("backward", backward)
register("end_recordings", end_recordings)
