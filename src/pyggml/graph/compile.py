# SPDX-License-Identifier: MIT
"""Functions that are recorded once for each shape of their inputs."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
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
        self._limits = max_graphs, max_bytes
        self._plans: LRUCache[_Plan] = graph_cache(
            "compile",
            _Plan.size_bytes,
            max_graphs,
            max_bytes,
            "pad the inputs to fewer shapes, or raise max_graphs or max_bytes",
        )
        self._dropout = DropoutStream()
        self._modes: dict[int, weakref.ref[Any]] = {}
        self._runs = 0
        self._once = NoReentry("compile")
        # The object whose method this is, by its id, with what was recorded for it.
        self._methods: dict[int, tuple[weakref.ref[Any], Compiled]] = {}
        self._owner: type | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self._fn,)  # a copy records anew

    def __getattr__(self, name: str) -> Any:
        """Return what the function or module has: `parameters`, `eval`, `state_dict`, …"""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._fn, name)

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        """Return the method of an object, if the function is one of a class."""
        bind = getattr(type(self._fn), "__get__", None)
        method = None if instance is None or bind is None else bind(self._fn, instance, owner)
        if method is None or getattr(method, "__self__", None) is not instance:
            return self
        own = self._of(instance)

        def call(*args: Any, **kwargs: Any) -> Any:
            return own._call(method, args, kwargs)

        return update_wrapper(call, method)

    def _of(self, instance: Any) -> Compiled:
        """Return what was recorded for an object, which is not kept alive by it."""
        key, methods = id(instance), self._methods
        with COMPUTE_LOCK:
            if key not in methods or methods[key][0]() is not instance:
                try:
                    ref = weakref.ref(instance, partial(methods.pop, key))  # C; see WeakGroup
                except TypeError:
                    raise TypeError(
                        "compile: the object of a method must allow weak references, so that its"
                        f" graphs go with it; got a {type(instance).__name__}: add '__weakref__' to"
                        " its __slots__"
                    ) from None
                methods[key] = ref, Compiled(self._fn, *self._limits)
            return methods[key][1]

    def _key(self, given: list[Any], form: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what a recording depends on: the shapes, and the modes of the modules in it."""
        modules = (ref() for ref in self._modes.values())
        modes = (None if module is None else module.training for module in modules)
        shapes = ((t.shape, t.dtype, t.device.name, is_mask(t.node)) for t in given)
        return (rounding(), form, *shapes, *modes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plan for these shapes, recording it first if it is new."""
        if self._owner is not None and args and isinstance(args[0], self._owner):
            return self.__get__(args[0], self._owner)(*args[1:], **kwargs)
        return self._call(self._fn, args, kwargs)

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the plan of the function, or of a method of the object that this belongs to."""
        if kwargs:
            args, kwargs = _in_place(fn, args, kwargs)
        form = len(args), *kwargs
        given = [a if isinstance(a, Tensor) else tensor(a) for a in (*args, *kwargs.values())]
        if outer() is not None:  # a part of what records, with its gradients
            outputs = _apply(fn, given, form)
            _as_list(outputs)
            return outputs
        arrays = [t.numpy() for t in given]
        with COMPUTE_LOCK:  # another thread's call must not record or write between
            plan = self._plans.get(self._key(given, form))
            if plan is None or not plan.graph.is_current:
                plan = self._record(fn, given, form)
                self._plans.put(self._key(given, form), plan)
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

    def _record(self, fn: Callable[..., Any], given: list[Tensor], form: tuple[Any, ...]) -> _Plan:
        """Record the function for inputs like these."""
        inputs = [tensor(t) for t in given]
        trace = Trace("compile", [t.node for t in inputs])
        with self._dropout, trace:
            outputs = _apply(fn, inputs, form)
        # Weakly: the object of a method, which may be one of them, is not to be kept alive.
        self._modes.update((key, weakref.ref(module)) for key, module in trace.modes.items())
        flat = _as_list(outputs)
        return _Plan(inputs, outputs, Graph(flat), leaves(t.node for t in flat))


def _in_place(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by place as far as the signature has places, and others by name."""
    try:
        bound = inspect.signature(getattr(fn, "forward", fn)).bind(*args, **kwargs)
    except (TypeError, ValueError):  # the function itself says what is wrong
        return args, kwargs
    return bound.args, {name: bound.kwargs[name] for name in sorted(bound.kwargs)}


def _apply(fn: Callable[..., Any], given: Sequence[Tensor], form: tuple[Any, ...]) -> Any:
    """Call a function by the number of arguments by place, and the names of the others."""
    count, *names = form
    return fn(*given[:count], **dict(zip(names, given[count:], strict=True)))


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
            A method of a class, decorated in it, is recorded for each object apart, and its
            graphs go when the object goes.
        max_graphs: graphs that are kept, one for each shape of the inputs; beyond this number the
            one used longest ago is dropped, and recorded anew when its shape comes again. A method
            keeps as many for each object.
        max_bytes: memory that these graphs may take, likewise.

    Warns:
        RuntimeWarning: a graph is dropped for the first time.

    Returns:
        A callable that takes tensors or arrays, by place or by name, and returns stored tensors.
        An argument that is left out has the function's own default. Gradients do not come back
        through the results; called by a function that is recorded itself, it is a part of that one.

    Example:
        >>> double = compile(lambda x: x * 2)
        >>> double([1.0, 2.0]).tolist()
        [2.0, 4.0]
    """
    return Compiled(function("compile", "fn", fn, "tensors -> tensors"), max_graphs, max_bytes)


register("evaluate", evaluate)
register("backward", backward)
register("end_recordings", end_recordings)
