# SPDX-License-Identifier: MIT
"""The gradients' global norm, and the factor that clips it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import checks, ops
from ..graph import Graph
from ..ops.operands import need_float
from ..tensors import Tensor, full

__all__ = [
    "NORM_MAX",
    "ClipValue",
    "GradNorm",
    "check_norm",
    "clip_factor",
    "factor_of",
    "sum_of_squares",
]

# The square of a longer gradient is more than f32 holds, as second moments do.
NORM_MAX = math.sqrt(float(np.finfo(np.float32).max))

# torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6; runs stay comparable with it.
_NORM_EPS = 1e-6
# Terms that a device without SUM_SQR adds up one after another.
_ROW = 1024


class GradNorm:
    """The Euclidean norm of several tensors together, as a graph recorded once.

    Where the sum of the squares is more than f32 holds, it is summed in f64 on the host: a norm is
    infinite or NaN only where an element is.

    Args:
        tensors: f32 tensors on one device, one at least.
        whole: one tensor of all their elements and of zeros, which one op reads; None reads each.

    Raises:
        TypeError: not several f32 tensors.
        ValueError: no tensor.

    Example:
        >>> GradNorm([tensor([3.0]), tensor([0.0, 4.0])])()
        5.0
    """

    def __init__(self, tensors: Sequence[Tensor], whole: Tensor | None = None) -> None:
        self._tensors = _several("GradNorm", tensors)
        self._total = sum_of_squares(self._tensors if whole is None else [whole])
        self.graph = Graph([self._total], device=self._tensors[0].device)

    def __call__(self) -> float:
        """Compute the norm of what the tensors now hold."""
        self.graph.run()
        total = float(self.graph.read(self._total).reshape(()))
        if not math.isfinite(total):
            total = math.fsum(_square(each.numpy()) for each in self._tensors)
        return math.sqrt(total)


class ClipValue:
    """Clips every element of several tensors in place, as a graph recorded once.

    Args:
        tensors: stored f32 tensors on one device, one at least.
        value: largest magnitude that stays, > 0.

    Raises:
        TypeError: not several f32 tensors.
        ValueError: no tensor, one that is not stored, or value is not a positive number.

    Source: torch.nn.utils.clip_grad_value_.

    Example:
        >>> g = tensor([3.0, -0.5])
        >>> ClipValue([g], 1.0)()
        >>> g.tolist()
        [1.0, -0.5]
    """

    def __init__(self, tensors: Sequence[Tensor], value: float) -> None:
        value = checks.f32("ClipValue", "value", value, above=0.0)
        tensors = _several("ClipValue", tensors)
        op = next((t for t in tensors if not t.is_stored), None)
        if op is not None:
            raise ValueError(
                f"ClipValue: tensors must be stored, as gradients are; got a recorded op of shape "
                f"{op.shape}"
            )
        weight = next((t for t in tensors if t.requires_grad), None)
        if weight is not None:
            raise ValueError(
                "ClipValue: tensors must be gradients, which require none themselves; got a tensor"
                f" of shape {weight.shape} that requires one: give its grad"
            )
        self._factor = full((1,), 1.0, device=tensors[0].device)
        bounded = [ops.clamp(ops.mul(t, self._factor), -value, value) for t in tensors]
        effects = [ops.cpy(b, t) for b, t in zip(bounded, tensors, strict=True)]
        self._graph = Graph([], effects=effects, device=tensors[0].device)

    def __call__(self, factor: float = 1.0) -> None:
        """Multiply what the tensors now hold by a factor, and clip it.

        Args:
            factor: such as one over a loss scale.

        Raises:
            ValueError: factor is not finite.
        """
        self._factor.copy_([checks.f32("ClipValue", "factor", factor)])
        self._graph.run()


def _square(x: np.ndarray) -> float:
    """Return the sum of the squares in f64."""
    wide = x.astype(np.float64).reshape(-1)
    return float(wide @ wide)


def _several(where: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors; raise if there is none."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{where}: tensors must be a list; got one tensor; put it into a list")
    items = checks.items(where, "tensors", tensors)
    several = [need_float(where, "each of tensors", t) for t in items]
    if not several:
        raise ValueError(f"{where}: tensors must hold one at least; got none")
    return several


def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of the squares of several tensors' elements, one tensor after another.

    Args:
        tensors: f32 tensors on one device.

    Example:
        >>> sum_of_squares([tensor([3.0]), tensor([0.0, 4.0])]).item()
        25.0
    """
    total = _sum_sqr(tensors[0])
    for value in tensors[1:]:
        total = ops.add(total, _sum_sqr(value))
    return total


def _sum_sqr(x: Tensor) -> Tensor:
    """Return the sum of squares by one op, or by several where the device lacks it."""
    fused = ops.sum_sqr(x)
    if x.device.supports(fused.ptr):
        return fused
    # By rows: such a device may give all of a SUM to a few threads, and add term by term.
    width = math.gcd(x.numel(), _ROW)
    return ops.sum(ops.sum_rows(ops.reshape(ops.sqr(x), (x.numel() // width, width))))


def clip_factor(norm: float, clip: float) -> float:
    """Return min(1, clip / (norm + 1e-6)), by which the gradients are multiplied.

    Args:
        norm: the gradients' norm, finite.
        clip: longest norm allowed, > 0.

    Raises:
        ValueError: norm is not finite or negative, or clip is not positive.

    Source: torch.nn.utils.clip_grad_norm_; Pascanu et al. 2013, arXiv:1211.5063.

    Example:
        >>> clip_factor(0.5, 1.0)
        1.0
    """
    norm = checks.f32("clip_factor", "norm", norm, 0.0)
    return factor_of(norm, checks.f32("clip_factor", "clip", clip, above=0.0))


def check_norm(who: str, norm: float, clip: float | None, grad_scale: float, step: int) -> None:
    """Raise a FloatingPointError for a norm that is not finite, or too large for f32."""
    if not math.isfinite(norm):
        raise FloatingPointError(
            f"{who}: the gradients must be finite; got norm {norm} at step {step}, no parameter "
            "was changed; lower the learning rate or clip"
        )
    # A smaller scale mends what is too long with one; what is too long without, clipping does.
    kept = norm if grad_scale != 1.0 or clip is None else min(norm, clip)
    if kept > NORM_MAX:
        raise FloatingPointError(
            f"{who}: the gradients' norm must be at most {NORM_MAX:.2g}, whose square f32 holds; "
            f"got {norm:g} at step {step}, no parameter was changed; clip, or lower the learning "
            "rate or grad_scale"
        )


def factor_of(norm: float, clip: float) -> float:
    """Return `clip_factor` of numbers that were checked."""
    return min(1.0, clip / (norm + _NORM_EPS))
