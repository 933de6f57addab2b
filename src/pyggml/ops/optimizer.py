# SPDX-License-Identifier: MIT
"""Optimizer steps as ops: they change stored parameters in place when the graph runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backend.device import COMPUTE_LOCK
from ..backend.library import lib
from ..errors import ShapeError, fitting
from ..tensors.record import record
from ..tensors.tensor import Tensor
from ..tensors.tracing import is_input
from .operands import apart, contiguous, need_float, overlap

__all__ = ["opt_step_adamw", "opt_step_sgd"]


def _step(who: str, fn: Callable[..., Any], n_hyper: int, **tensors: Tensor) -> Tensor:
    # hyper may hold one number more: the factor on the gradient
    for name, x in tensors.items():
        need_float(who, name, x)
    param, grad, *moments, hyper = tensors.values()
    if not param.is_stored:
        raise ValueError(f"{who}: param must be a stored tensor; got a recorded op")
    for x in (param, *moments):
        if is_input(x.node):
            raise ValueError(
                f"{who}: param, m and v must not be inputs of the function that is being recorded,"
                f" which change in its own copy alone; got shape {x.shape}: let it capture them"
            )
    for name, x in list(tensors.items())[:-1]:
        if x.shape != param.shape:
            raise ShapeError(
                f"{who}: {name} must have param's shape {param.shape}; got {name}.shape={x.shape}"
            )
    written = [(name, x) for name, x in tensors.items() if name not in ("grad", "hyper")]
    for i, (name, x) in enumerate(written):
        if not lib.ggml_is_contiguous(x.ptr):
            raise ValueError(
                f"{who}: {name} is written, and must have its elements in order; got a view that"
                " skips or reorders them: give the stored tensor"
            )
        for other, y in written[:i]:
            if overlap(x, y):
                raise ValueError(
                    f"{who}: {other} and {name} are both written, and must not share memory;"
                    f" got one tensor, or views of one: store another with pg.zeros({param.shape})"
                )
    if hyper.shape not in ((n_hyper,), (n_hyper + 1,)):
        raise ShapeError(
            f"{who}: hyper must be ({n_hyper},), or ({n_hyper + 1},) with a factor on grad; "
            f"got {hyper.shape}"
        )
    kept = [x for _, x in written]
    grad, hyper = (apart(contiguous(x), *kept) for x in (grad, hyper))
    args = [param, grad, *(contiguous(x) for x in moments), hyper]
    with COMPUTE_LOCK:  # graphs that other threads make set and read the flag, too
        flags = param.ptr.flags
        try:
            param.ptr.flags |= lib.GGML_TENSOR_FLAG_PARAM  # ggml asserts it
            return record(fn, args, param.shape, False)
        finally:
            param.ptr.flags = flags


@fitting
def opt_step_adamw(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, hyper: Tensor) -> Tensor:
    """One step of AdamW on a stored parameter and its moments.

    m ← β1 m + (1 - β1) g;  v ← β2 v + (1 - β2) g²
    w ← w (1 - lr·wd) - lr · m̂ / (sqrt(v̂) + eps)

    Args:
        param: stored f32 parameter.
        grad: its gradient.
        m, v: stored moments.
        hyper: [lr, β1, β2, eps, wd, 1/(1 - β1^t), 1/(1 - β2^t)], t from 1; an eighth
            number, if there is one, multiplies grad.

    Shape:
        param, grad, m, v (...), hyper (7,) or (8,) -> as param

    Raises:
        ShapeError: a shape differs.
        ValueError: param is not stored, param, m and v share memory, or m or v is out of order.

    Source: ggml_opt_step_adamw; Loshchilov and Hutter 2017, arXiv:1711.05101.
    """
    tensors = {"param": param, "grad": grad, "m": m, "v": v, "hyper": hyper}
    return _step("opt_step_adamw", lib.ggml_opt_step_adamw, 7, **tensors)


@fitting
def opt_step_sgd(param: Tensor, grad: Tensor, hyper: Tensor) -> Tensor:
    """One step of gradient descent: w ← w (1 - lr·wd) - lr · g.

    Args:
        param: stored f32 parameter.
        grad: its gradient.
        hyper: [lr, wd]; a third number, if there is one, multiplies grad.

    Shape:
        param, grad (...), hyper (2,) or (3,) -> as param

    Raises:
        ShapeError: a shape differs.
        ValueError: param is not stored.

    Source: ggml_opt_step_sgd.
    """
    return _step("opt_step_sgd", lib.ggml_opt_step_sgd, 2, param=param, grad=grad, hyper=hyper)
