# SPDX-License-Identifier: MIT
"""Cross-entropy of a linear head, without all logits in memory at once."""

from __future__ import annotations

import math
from collections.abc import Callable

from ... import checks, ops
from ...backend.device import Device
from ...errors import ShapeError, fitting
from ...graph import bytes_for_speed, postpone, recompute
from ...ops.operands import need_dtype, need_float, need_tensor
from ...tensors import Tensor
from .distribution import counted, cross_entropy
from .reduction import REDUCTIONS
from .targets import are_classes

__all__ = ["linear_cross_entropy", "soft_capped"]

# Logits below this are computed at once; each part adds a pass over the gradient of the weight.
_PART_BYTES = 64 * 2**20
_MOST_PARTS = 8
# Some of CUDA's kernels count elements in 31 bits.
_LARGEST_PART_BYTES = 2**32


@fitting
def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    softcap: float = 0.0,
    bias: Tensor | None = None,
) -> Tensor:
    """`cross_entropy(linear(x, weight), targets)` with a part of the logits in memory.

    Of a large vocabulary the logits are the largest result of a step. In parts of 64 MiB or more,
    at most eight, each lives from its matmul to its gradient. A CUDA GPU has fewer parts, unless
    the run has a memory limit: each takes up to a sixteenth of its memory, or 4 GiB. The loss has
    the same bits as that of all logits; the gradient of the weight is summed part by part.

    Args:
        x: what the head reads.
        weight: of the head.
        targets: i32 class numbers.
        ignore_index: class number of positions that do not count, neither in sum nor in mean.
        reduction: "mean" over the positions that count, "sum" or "none".
        label_smoothing: share of the target that is spread over all classes, in [0, 1].
        softcap: above 0, logits become softcap * tanh(logit / softcap).
        bias: of the head; None has none.

    Shape:
        x (..., C), weight (V, C), bias (V,), targets (...) -> (), or (...) for "none"

    Raises:
        ShapeError: the extents do not fit.
        DTypeError: x is not f32, or targets are not i32.
        ValueError: an option is out of range.

    Source: ggml_mul_mat, ggml_cross_entropy_rows; the logits by parts: Wijmans et al. 2024,
        arXiv:2411.09009; Hsu et al. 2024, arXiv:2410.10989.

    Example:
        >>> loss = linear_cross_entropy(ones((2, 3)), zeros((4, 3)), tensor([0, 3]))
        >>> round(loss.item(), 4)
        1.3863
    """
    who = "linear_cross_entropy"
    need_float(who, "x", x)
    need_tensor(who, "weight", weight)
    need_tensor(who, "targets", targets)
    if bias is not None:
        need_float(who, "bias", bias)
        if bias.shape != weight.shape[:1]:
            raise ShapeError(f"{who}: bias must be (V,), {weight.shape[:1]}; got {bias.shape}")
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    checks.f32(who, "label_smoothing", label_smoothing, 0.0, 1.0)
    checks.f32(who, "softcap", softcap, 0.0)
    ignore_index = checks.whole(who, "ignore_index", ignore_index, -(2**31), 2**31 - 1)
    need_dtype(who, "targets", targets, "i32")
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"{who}: x must be (..., C) and weight (V, C); got {x.shape} and {weight.shape}"
        )
    if targets.shape != x.shape[:-1]:
        raise ShapeError(
            f"{who}: targets must have the shape of x less its last axis, {x.shape[:-1]}; "
            f"got {targets.shape}"
        )
    are_classes(who, "targets", targets, weight.shape[0], ignore_index)
    n = math.prod(targets.shape)
    results = 1 + (bias is not None) + 3 * bool(softcap)
    most_bytes = _part_bytes(x.device, results)
    parts = min(_MOST_PARTS, -(-4 * n * weight.shape[0] // most_bytes), n)
    if parts < 2:
        logits = soft_capped(ops.linear(x, weight, bias), softcap)
        return cross_entropy(logits, targets, None, ignore_index, reduction, label_smoothing)
    flat, classes = x.reshape(n, x.shape[-1]), targets.reshape(n)
    size = -(-n // parts)
    losses = []
    for start in range(0, n, size):
        logits = postpone(ops.linear(flat[start : start + size], weight))
        if bias is not None:
            logits = postpone(ops.add(logits, bias))
        logits = soft_capped(logits, softcap, postpone)
        at = classes[start : start + size]
        losses.append(cross_entropy(logits, at, None, ignore_index, "none", label_smoothing))
    rows = losses[0]
    for more in losses[1:]:
        rows = ops.concat([rows, more])
    if reduction == "none":
        return rows.reshape(*targets.shape)
    if reduction == "sum":
        return ops.sum(rows)
    return ops.div(ops.sum(rows), ops.clamp(ops.sum(counted(classes, ignore_index)), 1.0, float(n)))


def _part_bytes(where: Device, results: int) -> int:
    """Bytes that the logits of a part may take, one of so many results of their size."""
    return max(_PART_BYTES, min(bytes_for_speed(where) // results, _LARGEST_PART_BYTES))


def soft_capped(x: Tensor, cap: float, mark: Callable[[Tensor], Tensor] = recompute) -> Tensor:
    """Return cap * tanh(x / cap), or x where the cap is 0.

    Args:
        x: logits.
        cap: what their size stays below; 0 caps nothing.
        mark: applied to what the ops return.

    Shape:
        any -> as x

    Source: Gemma 2, arXiv:2408.00118.
    """
    if not cap:
        return x
    return mark(ops.scale(mark(ops.tanh(mark(ops.scale(x, 1.0 / cap)))), cap))
