# SPDX-License-Identifier: MIT
"""Running a case: the op's numbers and its gradients against the reference."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.device import Device
from ..errors import BackendError, DTypeError, GradientError
from ..tensors.create import tensor
from ..tensors.tensor import Tensor
from .case import Case

__all__ = ["HALF_GRADIENTS", "TOLERANCES", "Result", "run_case"]

Array = np.ndarray[Any, Any]

# Largest relative error (norm of the difference over norm) of results and gradients. f32: ggml's
# NMSE of 1e-7 is a relative error of 3e-4, and its gradients' 1e-4. f16 and bf16 round each number
# by up to 2^-11 and 2^-9 of itself, and an op may round its operands, its result or both.
TOLERANCES = {"f32": (3e-4, 1e-4), "f16": (2e-3, 2e-3), "bf16": (8e-3, 8e-3)}
"""The largest error of the forward and of the gradient, by type."""
# The ops whose rows of f16 and bf16 have a gradient, too; the others' say "unsupported".
HALF_GRADIENTS = frozenset(
    """
    add broadcast_to cast concat cont flash_attn_ext get_rows getitem mul_mat mul_mat_id permute
    repeat reshape sub transpose
    """.split()
)
_STEP = 1e-5
# Below this norm a gradient counts as zero, and the difference itself is the error.
_SMALLEST = 1e-3


@dataclass(frozen=True)
class Result:
    """The result of a case.

    Attributes:
        case: the row.
        dtype: of the operands that were cast.
        forward: relative error of the result, None when unsupported.
        backward: largest relative error of the gradients, None when there is none to check.
        reason: why something is unsupported, or "".
    """

    case: Case
    dtype: str
    forward: float | None
    backward: float | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """OK, FAIL or unsupported; a row of f32 that does not run, or lost its gradient, fails."""
        expected = self.dtype == "f32" or self.case.name in HALF_GRADIENTS
        missing = "FAIL" if expected else "unsupported"
        if self.forward is None:
            return missing
        tolerances = TOLERANCES[self.dtype]
        errors = (self.forward, 0.0 if self.backward is None else self.backward)
        good = all(e <= limit for e, limit in zip(errors, tolerances, strict=True))
        if not good:
            return "FAIL"
        return "OK" if self.backward is not None or self.case.grad == () else missing


def relative_error(got: Array, want: Array) -> float:
    """Norm of the difference over the norm of what is wanted; NaN counts as infinite."""
    error = float(np.linalg.norm((got - want).ravel()))
    return np.inf if np.isnan(error) else error / max(float(np.linalg.norm(want)), _SMALLEST)


def numeric_gradient(fn: Callable[..., Array], operands: list[Array], which: int) -> Array:
    """Central differences of a scalar function in float64."""
    grad = np.zeros_like(operands[which])
    for at in np.ndindex(grad.shape):
        values = []
        for sign in (1, -1):
            moved = operands[which].copy()
            moved[at] += sign * _STEP
            values.append(float(fn(*operands[:which], moved, *operands[which + 1 :])))
        grad[at] = (values[0] - values[1]) / (2 * _STEP)
    return grad


def _operands(
    arrays: list[Array], dtype: str, where: Device, half: Collection[int], grads: Collection[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """Leaves of f32, those in `grads` with a gradient, and the operands made of them by a cast."""
    leaves = [
        tensor(tensor(x, dtype) if i in half else x, "f32", where) for i, x in enumerate(arrays)
    ]
    for i in grads:
        leaves[i].requires_grad = True
    return leaves, [t.astype(dtype) if i in half else t for i, t in enumerate(leaves)]


def run_case(case: Case, dtype: str, where: Device, uses: int = 1) -> Result:
    """Run one row.

    Args:
        case: the row.
        dtype: of the operands, which are cast from f32 within the graph; where an op wants
            some of them f32, those in `case.half` alone are cast.
        where: the device.
        uses: how often the op's result enters the loss; gradients must add up.
    """
    arrays = case.operands(1)
    wanted = range(len(arrays)) if case.grad is None else case.grad
    reason = ""
    for half in (range(len(arrays)), case.half):
        leaves, tensors = _operands(arrays, dtype, where, half, wanted)
        operands = [t.numpy().astype(np.float64) for t in leaves]
        try:
            result = case.run(*tensors)
            got = result.numpy().astype(np.float64)
            break
        except (DTypeError, BackendError) as error:
            reason = str(error)
    else:
        return Result(case, dtype, None, None, reason)
    want = case.reference(*operands)
    forward = relative_error(got, want) if got.shape == want.shape else np.inf
    if not wanted:
        return Result(case, dtype, forward, None, "there is no gradient to check")
    weight = np.random.default_rng(2).uniform(0.5, 1.5, want.shape)
    weight = weight.astype(np.float32).astype(np.float64)
    weights = tensor(weight, device=where)
    loss = (result.astype("f32") * weights).sum()
    for _ in range(uses - 1):
        loss = loss + (case.run(*tensors).astype("f32") * weights).sum()
    try:
        loss.backward()
    except (GradientError, BackendError) as error:
        return Result(case, dtype, forward, None, str(error))

    def summed(*xs: Array) -> Array:
        return np.asarray((case.reference(*xs) * weight).sum() * uses)

    backward = 0.0
    for i in wanted:
        grad = leaves[i].grad
        got = np.zeros_like(operands[i]) if grad is None else grad.numpy().astype(np.float64)
        backward = max(backward, relative_error(got, numeric_gradient(summed, operands, i)))
    return Result(case, dtype, forward, backward)
