# SPDX-License-Identifier: MIT
"""Gradients of functions: computed together with the value, and checked against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.device import COMPUTE_LOCK
from ..backend.lru import LRUCache
from ..checks import function
from ..checks import number as check_number
from ..errors import DTypeError, GradientError, ShapeError
from ..ops.dropout import DropoutStream
from ..tensors.autocast import rounding
from ..tensors.create import tensor
from ..tensors.tensor import Tensor
from ..tensors.tracing import Trace, outer
from ..tensors.truth import is_mask
from .backward_checks import end_gradients
from .graph import Graph, tensor_like
from .graph_cache import MAX_BYTES, MAX_GRAPHS, copy_in, graph_cache
from .reentry import NoReentry
from .walk import leaves

__all__ = ["check_grads", "value_and_grad"]


def _as_inputs(args: Sequence[Any]) -> list[Tensor]:
    return [a if isinstance(a, Tensor) else tensor(a) for a in args]


def _scalar(who: str, result: Any) -> Tensor:
    if not isinstance(result, Tensor) or result.numel() != 1:
        got = result.shape if isinstance(result, Tensor) else type(result).__name__
        raise ShapeError(f"{who}: the function must return a tensor of one element; got {got}")
    return result


def _argument_numbers(argnums: Any) -> list[int]:
    given = list(argnums) if isinstance(argnums, (list, tuple)) else [argnums]
    whole = all(isinstance(i, int) and not isinstance(i, bool) for i in given)
    if not given or not whole or len(set(given)) != len(given):
        raise TypeError(
            f"value_and_grad: argnums must be one integer, or several that differ; got {argnums!r}"
        )
    return given


class _Plan:
    """One recording of a function: its inputs, its graph, and its gradients."""

    def __init__(self, fn: Callable[..., Tensor], given: Sequence[Tensor], argnums: Sequence[int]):
        self.inputs = [tensor(t) for t in given]
        self.dropout = DropoutStream()
        self.runs = 0
        self.once = NoReentry("value_and_grad")
        trace = Trace("value_and_grad", [t.node for t in self.inputs])
        with self.dropout, trace:
            self.loss = _scalar("value_and_grad", fn(*self.inputs))
        self.modes = trace.modes
        wanted = [self.inputs[i] for i in argnums]
        if len({id(t) for t in wanted}) < len(wanted):
            raise TypeError(f"value_and_grad: argnums name an argument twice; got {argnums!r}")
        self.grads = [tensor_like(t) for t in wanted]
        pairs = dict(zip(wanted, self.grads, strict=True))
        self.graph = Graph([self.loss], loss=self.loss, grads=pairs)
        self.below = leaves([self.loss.node])

    def size_bytes(self) -> int:
        """Return the bytes that keeping it takes."""
        return self.graph.kept_bytes + sum(t.nbytes for t in [*self.inputs, *self.grads])

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        arrays = [t.numpy() for t in given]
        with COMPUTE_LOCK:  # another thread's call must not write between
            self.once.enter()
            try:
                copy_in("value_and_grad: args", self.inputs, arrays)
                for grad in self.grads:
                    grad.zero_()
                self.dropout.seek(self.runs)
                self.runs += 1
                self.graph.run()
                value, grads = self.graph.fetch(self.loss), [tensor(g) for g in self.grads]
            finally:
                self.once.leave()
        below = [*self.below, *(t.node for t in given)]
        end_gradients("value_and_grad", [value, *grads], below)
        return value, grads


def value_and_grad(
    fn: Callable[..., Tensor],
    argnums: int | Sequence[int] = 0,
    max_graphs: int = MAX_GRAPHS,
    max_bytes: int = MAX_BYTES,
) -> Callable[..., tuple[Tensor, Any]]:
    """Make a function that returns what `fn` returns, and its gradient.

    Args:
        fn: takes tensors, returns a tensor of one element. It is recorded once per shape.
        argnums: the argument, or arguments, to differentiate by; f32.
        max_graphs: graphs that are kept, as in `compile`.
        max_bytes: memory that they may take, as in `compile`.

    Warns:
        RuntimeWarning: a graph is dropped for the first time.

    Returns:
        A function of the same arguments (tensors or arrays) that returns (value, gradient), or
        (value, list of gradients) for several argnums.

    Raises:
        IndexError: there is no such argument.
        TypeError: `fn` is no function, or argnums are not integers that differ.
        DTypeError: an argument to differentiate by is not f32.
        ShapeError: `fn` returns more than one element.
        GradientError: an op in between has no gradient; or the function returned is called while
            another one is recorded, for a gradient's gradient.
        RecordingError: `fn` reads what depends on its arguments.

    Source: the function of this name in JAX and MLX.

    Example:
        >>> value, grad = value_and_grad(lambda x: (x * x).sum())([1.0, 2.0])
        >>> value.item(), grad.tolist()
        (5.0, [2.0, 4.0])
    """
    function("value_and_grad", "fn", fn, "tensors -> tensor")
    which = _argument_numbers(argnums)
    cure = "pad the inputs to fewer shapes, or raise max_graphs or max_bytes"
    plans: LRUCache[_Plan] = graph_cache(
        "value_and_grad", _Plan.size_bytes, max_graphs, max_bytes, cure
    )

    modes: dict[int, Any] = {}

    def key(given: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return what a recording depends on, as that of `compile`."""
        trained = (module.training for module in modes.values())
        shapes = ((t.shape, t.dtype, t.device.name, is_mask(t.node)) for t in given)
        return (rounding(), *shapes, *trained)

    def both(*args: Any) -> tuple[Tensor, Any]:
        if outer() is not None:
            raise GradientError(
                f"value_and_grad: a function that {outer()} records must not call it, as a gradient"
                " has no gradient and no place in another graph; call it outside"
            )
        given = _as_inputs(args)
        for i in which:
            if not -len(given) <= i < len(given):
                raise IndexError(f"value_and_grad: there is no argument {i} of {len(given)}")
            if given[i].dtype.name != "f32":
                raise DTypeError(
                    f"value_and_grad: argument {i} must be f32; got {given[i].dtype.name}"
                )
        with COMPUTE_LOCK:
            plan = plans.get(key(given))
            if plan is None or not plan.graph.is_current:
                plan = _Plan(fn, given, which)
                modes.update(plan.modes)
                plans.put(key(given), plan)
        value, grads = plan(given)
        return value, grads[0] if isinstance(argnums, int) else grads

    return both


def check_grads(
    fn: Callable[..., Tensor], *inputs: Any, eps: float = 1e-2, tolerance: float = 1e-2
) -> float:
    """Compare a function's gradients with central differences.

    Every element of every f32 input is moved by ±eps and ±2 eps; the five-point formula keeps the
    step long enough for f32 without its own error. Keep inputs away from kinks. What is detached
    has no gradient, but its differences: a function that detaches raises.

    Args:
        fn: takes tensors, returns a tensor; of a larger one, a fixed weighted sum is checked.
        inputs: tensors or arrays.
        eps: step.
        tolerance: largest norm of the difference over the norm of the gradient.

    Returns:
        The largest relative difference found.

    Raises:
        GradientError: it exceeds the tolerance; the message names input and element.
        DTypeError: no input is f32.
        ValueError: eps is too small for an element, or the element is not finite.
        TypeError: eps or the tolerance is not a number, or `fn` is no function of tensors.

    Example:
        >>> check_grads(lambda x: x * x, [1.0, -2.0]) < 1e-2
        True
    """
    function("check_grads", "fn", fn, "tensors -> tensor")
    for name, number in (("eps", eps), ("tolerance", tolerance)):
        check_number("check_grads", name, number)
    given = [t.numpy() for t in _as_inputs(inputs)]
    checked = [i for i, x in enumerate(given) if x.dtype == np.float32]
    if not checked:
        raise DTypeError("check_grads: at least one input must be f32")
    first = fn(*map(tensor, given))
    if not isinstance(first, Tensor):
        raise TypeError(
            f"check_grads: the function must return a tensor; got {type(first).__name__}"
        )
    weight = tensor(np.random.default_rng(0).uniform(0.5, 1.5, first.shape).astype(np.float32))

    def summed(*args: Tensor) -> Tensor:
        return (fn(*args) * weight).sum()

    _, grads = value_and_grad(summed, checked)(*given)
    differences = _Differences(fn, given, weight)
    worst = 0.0
    for i, grad in zip(checked, grads, strict=True):
        want = np.zeros(given[i].shape)
        for at in np.ndindex(want.shape):
            near, far = (differences.slope(i, at, step) for step in (eps, 2 * eps))
            want[at] = (4 * near - far) / 3
        got = grad.numpy()
        error = float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-3))
        if not error <= tolerance:
            at = np.unravel_index(int(np.nanargmax(np.abs(got - want))), want.shape)
            raise GradientError(
                f"check_grads: input {i}: relative difference {error:.2e} exceeds {tolerance:g};"
                f" at {tuple(map(int, at))} the gradient is {got[at]:.6g}, differences give"
                f" {want[at]:.6g}"
            )
        worst = max(worst, error)
    return worst


class _Differences:
    """Differences of a function's weighted sum, added up in float64."""

    def __init__(self, fn: Callable[..., Tensor], given: Sequence[np.ndarray], weight: Tensor):
        self._given = given
        self._inputs = [tensor(x) for x in given]
        with Trace("check_grads", [t.node for t in self._inputs], redraws=False):
            self._out = fn(*self._inputs)
        self._graph = Graph([self._out])
        self._weight = weight.numpy().astype(np.float64)

    def slope(self, which: int, at: tuple[int, ...], step: float) -> float:
        """(f(x + step) - f(x - step)) over the distance that f32 really makes of it."""
        values, places = [], []
        for sign in (1, -1):
            moved = self._given[which].copy()
            moved[at] += np.float32(sign * step)
            places.append(float(moved[at]))
            self._inputs[which].copy_(moved)
            self._graph.run()
            values.append(float((self._graph.read(self._out) * self._weight).sum()))
        self._inputs[which].copy_(self._given[which])
        if not places[0] > places[1]:
            raise ValueError(
                f"check_grads: eps must move every element; {self._given[which][at]:g} of input"
                f" {which} stays where it is; use smaller inputs or a larger eps"
            )
        return (values[0] - values[1]) / (places[0] - places[1])
