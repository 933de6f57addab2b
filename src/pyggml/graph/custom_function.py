# SPDX-License-Identifier: MIT
"""Functions with a gradient of one's own: recorded ops forward, recorded ops backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..backend.library import lib
from ..checks import function
from ..errors import DTypeError, GradientError, ShapeError
from ..tensors.create import zeros
from ..tensors.operators import register
from ..tensors.record import record, without_gradient
from ..tensors.tensor import Tensor
from ..tensors.tracing import Trace
from .pullbacks import PULLBACKS, Pullback
from .walk import placeholder

__all__ = ["custom_function"]

_WHO = "custom_function"


def custom_function(
    forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Make a differentiable function of a forward and a backward of one's own.

    Both are recorded when the function is called, and become ops of the graph: when that runs, no
    Python does. What the forward computes, the backward may use without computing it again, if the
    forward returns it: as one of several results.

    Args:
        forward: (arguments) -> a Tensor, or a tuple of them. Tensors among the arguments come
            detached.
        backward: (gradient, result, arguments) -> the gradient of each argument, as a Tensor of
            its shape, or None where there is none, as for what is not an f32 tensor. A function of
            one argument may return it alone. For several results, gradient and result are tuples.

    Returns:
        A function of tensors (and of anything else that `forward` takes).

    Raises:
        TypeError: forward or backward is no function, or returns what it should not.
        ShapeError: the backward's gradient has another shape than the argument.
        GradientError: the forward uses a tensor that requires a gradient and is not an argument.

    Example:
        >>> reverse = custom_function(lambda x: x, lambda grad, y, x: -grad)
        >>> w = pg.tensor([1.0, 2.0], requires_grad=True)
        >>> reverse(w).sum().backward()
        >>> w.grad.tolist()
        [-1.0, -1.0]
    """
    for name, fn in (("forward", forward), ("backward", backward)):
        function(_WHO, name, fn)

    def call(*args: Any) -> Any:
        return _call(forward, backward, args)

    return call


def _call(forward: Callable[..., Any], backward: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Record one call of a custom function, with its backward."""
    if not any(isinstance(a, Tensor) for a in args):
        raise TypeError(f"{_WHO}: at least one argument must be a Tensor; got {_types(args)}")
    inner = [without_gradient(a) if _is_float(a) else a for a in args]
    made = forward(*inner)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    if not results or not all(isinstance(y, Tensor) for y in results):
        raise TypeError(
            f"{_WHO}: forward must return a Tensor or a tuple of them; got {_types(results)}"
        )
    for y in results:
        if y.requires_grad:
            raise GradientError(
                f"{_WHO}: forward must read what requires a gradient through its arguments; got a"
                f" result of shape {y.shape} that other tensors lead to, too; pass them as"
                " arguments, or .detach() them"
            )
    ends = [without_gradient(y) if _is_float(y) else y for y in results]
    pullback = _record_backward(backward, args, inner, made, ends)
    if pullback.gates:
        _attach(pullback, ends)
    return ends[0] if isinstance(made, Tensor) else tuple(ends)


def _record_backward(
    backward: Callable[..., Any],
    args: Sequence[Any],
    inner: Sequence[Any],
    made: Any,
    ends: Sequence[Tensor],
) -> Pullback:
    """Record the backward now, while its mistakes are on the caller's line."""
    seeds = [placeholder(y) if _is_float(y) else zeros(y.shape, device=y.device) for y in ends]
    with Trace(f"{_WHO}: the backward", [seed.node for seed in seeds]):
        if isinstance(made, Tensor):
            given = backward(seeds[0], made, *inner)
        else:
            given = backward(tuple(seeds), tuple(made), *inner)
    grads = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(grads) != len(args):
        raise TypeError(
            f"{_WHO}: backward must return one gradient for each of {len(args)} arguments, None"
            f" where there is none; got {len(grads)}"
        )
    gates, results = [], []
    for i, (arg, grad) in enumerate(zip(args, grads, strict=True)):
        if grad is None:
            continue
        _check_grad(i, arg, grad)
        # A view that computes nothing, whatever the strides; its gradient is a view as well.
        gates.append(record(lib.ggml_permute, [arg, 0, 1, 2, 3], arg.shape).node)
        results.append(grad.node)
    return Pullback([seed.node for seed in seeds if not seed.is_stored], gates, results)


def _check_grad(i: int, arg: Any, grad: Any) -> None:
    """Raise for what cannot be the gradient of an argument."""
    if not isinstance(grad, Tensor):
        raise TypeError(
            f"{_WHO}: backward must return Tensors or None; got {type(grad).__name__} for"
            f" argument {i}"
        )
    if not isinstance(arg, Tensor) or arg.dtype.name != "f32":
        what = arg.dtype.name if isinstance(arg, Tensor) else type(arg).__name__
        raise DTypeError(
            f"{_WHO}: only f32 tensors have a gradient; got one for argument {i}, {what};"
            " return None for it"
        )
    if grad.shape != arg.shape or grad.dtype.name != "f32":
        raise ShapeError(
            f"{_WHO}: the gradient of argument {i} must be f32 and of its shape {arg.shape}; got"
            f" {grad.dtype.name}, {grad.shape}"
        )
    if grad.device is not arg.device:
        raise ShapeError(
            f"{_WHO}: the gradient of argument {i} must be on its device, {arg.device.name}; got"
            f" {grad.device.name}"
        )


def _attach(pullback: Pullback, ends: Sequence[Tensor]) -> None:
    """Let the results come after the gates, and know their backward."""
    trained = any(gate.requires_grad for gate in pullback.gates)
    for node in (end.node for end in ends if _is_float(end)):
        node.srcs = (*node.srcs, *pullback.gates)
        node.call = None  # what it was given are not all its sources any more
        node.requires_grad = trained
        PULLBACKS[node] = pullback
        pullback.outs.append(node)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_float


def _types(values: Iterable[Any]) -> str:
    return ", ".join(type(value).__name__ for value in values) or "nothing"


register("custom_function", custom_function)
