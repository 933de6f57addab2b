# SPDX-License-Identifier: MIT
"""Running recorded ops: at once, backward, or as a function compiled for each input shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backend.device import COMPUTE_LOCK
from ..checks import function
from ..errors import GradientError
from ..ops.dropout import DropoutStream
from ..tensors.autocast import rounding
from ..tensors.create import tensor
from ..tensors.node import Node
from ..tensors.operators import register
from ..tensors.tensor import Tensor
from ..tensors.tracing import Trace, outer
from .backward_checks import end_gradients
from .graph import Graph, tensor_like
from .walk import leaves, walk

__all__ = ["Compiled", "backward", "compile", "evaluate"]


def evaluate(t: Tensor) -> np.ndarray:
    """Compute a recorded tensor now."""
    graph = Graph([t])
    graph.run()
    return graph.read(t)


def backward(loss: Tensor) -> np.ndarray:
    """Add d(loss)/d(p) into `p.grad` of each stored p that requires it; return the loss."""
    if outer() is not None:
        raise GradientError(
            f"backward: a function that {outer()} records must not call it, as it would run only"
            " now; return the loss and call it outside, or use value_and_grad"
        )
    wanted = [n for n in walk([loss.node], set()) if n.buffer is not None and n.requires_grad]
    grads = {}
    for node in wanted:
        param = Tensor(node)
        with COMPUTE_LOCK:  # of two threads, one makes it
            if param.grad is None:
                param.grad = tensor_like(param)
        grads[param] = param.grad
    graph = Graph([loss], loss=loss, grads=grads)
    graph.run()
    value = graph.read(loss)
    for param in grads:
        param.run_hooks()
    return value


def _as_list(outputs: Any) -> list[Tensor]:
    flat = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not all(isinstance(t, Tensor) for t in flat):
        raise TypeError("compile: the function must return a Tensor or a list of them")
    return flat


class Compiled:
    """A function recorded once for each shape of its inputs; see `compile`."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn
        self._plans: dict[Any, tuple[list[Tensor], Any, Graph, list[Node]]] = {}
        self._dropout = DropoutStream()
        self._runs = 0

    def __call__(self, *args: Any) -> Any:
        """Run the plan for these shapes, recording it first if it is new."""
        given = [a if isinstance(a, Tensor) else tensor(a) for a in args]
        if outer() is not None:  # a part of what records, with its gradients
            outputs = self._fn(*given)
            _as_list(outputs)
            return outputs
        key = (rounding(), *((t.shape, t.dtype, t.device.name) for t in given))
        if key not in self._plans or not self._plans[key][2].is_current:
            inputs = [tensor(t) for t in given]
            with self._dropout, Trace("compile", [t.node for t in inputs]):
                outputs = self._fn(*inputs)
            flat = _as_list(outputs)
            self._plans[key] = inputs, outputs, Graph(flat), leaves(t.node for t in flat)
        inputs, outputs, graph, below = self._plans[key]
        arrays = [t.numpy() for t in given]
        with COMPUTE_LOCK:  # another thread's call must not write between
            for own, array in zip(inputs, arrays, strict=True):
                own.copy_(array)
            self._dropout.seek(self._runs)
            self._runs += 1
            graph.run()
            results = [graph.fetch(t) for t in _as_list(outputs)]
        end_gradients("compile", results, [*below, *(t.node for t in given)])
        return results[0] if isinstance(outputs, Tensor) else type(outputs)(results)


def compile(fn: Callable[..., Any]) -> Compiled:
    """Record a function once per shape of its inputs; later calls only copy inputs and compute.

    Args:
        fn: takes tensors, returns a tensor or a list or tuple of them. What it reads besides its
            arguments (parameters) is read anew at each call; Python code in it runs only when
            recording. It must not read what depends on its arguments.

    Returns:
        A callable that takes tensors or arrays and returns stored tensors. Gradients do not come
        back through these; called by a function that is recorded itself, it is a part of that one.

    Example:
        >>> double = compile(lambda x: x * 2)
        >>> double([1.0, 2.0]).tolist()
        [2.0, 4.0]
    """
    return Compiled(function("compile", "fn", fn, "tensors -> tensors"))


register("evaluate", evaluate)
register("backward", backward)
