# SPDX-License-Identifier: MIT
"""Choices between tensors by a mask: an f32 tensor of ones and zeros, see `compare`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.library import lib
from ...checks import is_real, number, whole
from ...errors import DTypeError, ShapeError, composed, shown
from ...tensors.create import tensor
from ...tensors.on_demand import on_demand
from ...tensors.operators import HIGHER
from ...tensors.record import record, without_gradient
from ...tensors.tensor import Tensor
from ...tensors.truth import is_mask, note_mask
from ..elementwise import add, clamp, log, mul, neg, scale, step
from ..layout import tri
from ..operands import (
    as_tensor,
    broadcast,
    contiguous,
    has_truth,
    need_float,
    need_ndim,
    shape_of,
)
from ..shape import broadcast_to, getitem, reshape
from .compare import difference, logical_not, truth_of

__all__ = ["masked_fill", "maximum", "minimum", "tril", "triu", "where"]

_PARTS = {
    (False, 0): "lower",
    (False, -1): "strictly_lower",
    (True, 0): "upper",
    (True, 1): "strictly_upper",
}


def _truth(mask: Tensor) -> Tensor:
    note_mask(mask.node)
    return mask


def _kept(x: Tensor, mask: Tensor) -> Tensor:
    """Return x where a mask is 1, and 0 elsewhere, also where x is infinite or NaN there."""
    shape = broadcast("where", x=x.shape, mask=mask.shape)
    x = broadcast_to(x, shape)
    chosen: Tensor = HIGHER["custom_function"](_selected, _selected_backward)(x, mask)
    return chosen


def _selected(x: Tensor, mask: Tensor) -> Tensor:
    # The gradient of REGLU: of its result's gradient x, where the other operand is above 0.
    lead, *rest = (*[1] * (4 - x.ndim), *x.shape)
    mask = contiguous(broadcast_to(mask, x.shape))
    args = [contiguous(x), mask, mask, lib.GGML_GLU_OP_REGLU, False]
    both = record(lib.ggml_glu_back, args, (2 * lead, *rest), False)
    return reshape(getitem(both, slice(0, lead)), x.shape)


def _selected_backward(grad: Tensor, _: Tensor, x: Tensor, mask: Tensor) -> tuple[Any, ...]:
    return _selected(grad, mask), None


def _mask(who: str, name: str, mask: Any, like: Any) -> Tensor:
    """Return a mask as a tensor: booleans become ones and zeros, of numbers it is their truth."""
    if isinstance(mask, Tensor):
        taken = truth_of(who, name, mask)
        return without_gradient(taken) if taken.requires_grad else taken
    try:
        array = np.asarray(mask)
    except ValueError:  # ragged lists
        array = np.empty(0)
    if array.dtype != bool:
        raise DTypeError(
            f"{who}: {name} must be a tensor, such as x > 0, or an array of booleans; got"
            f" {shown(mask)}"
        )
    return tensor(array, device=like.device if like is not None else None)


def _chosen(who: str, name: str, value: Any, mask: Tensor, other: Tensor) -> Tensor:
    """Return a value where a mask is 1, and 0 where it is 0; `other` is the mask's contrary."""
    if not is_real(value):
        return _kept(value, mask)
    value = number(who, name, value, finite=False)
    if math.isnan(value):
        raise ValueError(f"{who}: {name} must not be NaN, which would be everywhere")
    if math.isinf(value):  # ± log(1 - mask) is infinite where the mask is 1, and 0 elsewhere
        infinite = log(other)
        return infinite if value < 0 else neg(infinite)
    return scale(mask, float(value))


@on_demand
@composed
def where(mask: Any, a: Any, b: Any) -> Tensor:
    """Return a where a mask is not 0, and b where it is 0, whatever the other is there.

    Of masks a and b it is a mask.

    The gradient of what is not taken is 0. As in PyTorch, this 0 becomes NaN in an op that
    multiplies it by an infinite slope, such as `log` at 0.

    Args:
        mask: f32, such as `x > 0`, or NumPy booleans.
        a, b: tensors or numbers; all three broadcast.

    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the mask is neither f32 nor booleans.
        ValueError: a or b is the number NaN.

    Source: torch.where; ggml_glu_back.

    Example:
        >>> x = tensor([-1.0, 2.0])
        >>> where(x > 0, x, 0.5).tolist()
        [0.5, 2.0]
    """
    like = next((x for x in (mask, a, b) if isinstance(x, Tensor)), None)
    taken = _mask("where", "mask", mask, like)
    of_truth = has_truth(a) and has_truth(b)
    a = a if is_real(a) else need_float("where", "a", as_tensor("where", "a", a, taken))
    b = b if is_real(b) else need_float("where", "b", as_tensor("where", "b", b, taken))
    broadcast("where", mask=taken.shape, a=shape_of(a), b=shape_of(b))
    left = logical_not(taken)
    found = add(_chosen("where", "a", a, taken, left), _chosen("where", "b", b, left, taken))
    return _truth(found) if of_truth else found


@on_demand
@composed
def masked_fill(x: Tensor, mask: Any, value: float) -> Tensor:
    """Return x with a number where a mask is not 0; see `where`.

    Args:
        x: f32. A mask that is filled with 0 or 1 stays one.
        mask: f32, or NumPy booleans, which broadcast to x.
        value: perhaps -inf; then NaN and inf, where x has them below the mask, give NaN.

    Raises:
        ShapeError: the mask does not broadcast to x.

    Source: torch.Tensor.masked_fill.

    Example:
        >>> masked_fill(tensor([1.0, 2.0]), tensor([0.0, 1.0]), float("-inf")).tolist()
        [1.0, -inf]
    """
    need_float("masked_fill", "x", x)
    taken = _mask("masked_fill", "mask", mask, x)
    if broadcast("masked_fill", x=x.shape, mask=taken.shape) != x.shape:
        raise ShapeError(
            f"masked_fill: mask must broadcast to x.shape={x.shape}; got {taken.shape}"
        )
    filled = int(value) if isinstance(value, (bool, np.bool_)) else value
    value = number("masked_fill", "value", filled, finite=False)
    left = logical_not(taken)
    if value == -math.inf:
        return _hidden(x, left)
    found = add(_kept(x, left), _chosen("masked_fill", "value", value, taken, left))
    return _truth(found) if is_mask(x.node) and value in (0, 1) else found


def _hidden(x: Tensor, left: Tensor) -> Tensor:
    """Return x with -inf where a mask is 0, in one pass: what attention does at each step."""
    fill = HIGHER["custom_function"](
        lambda x, left: add(x, log(left)), lambda grad, _, x, left: (mul(grad, left), None)
    )
    hidden: Tensor = fill(x, left)
    return hidden


def _limited(who: str, a: Any, b: Any, lowest: bool) -> Tensor | None:
    """Return a tensor held above or below a number; None where neither is a number."""
    for name, x, other, limit in (("a", a, "b", b), ("b", b, "a", a)):
        if isinstance(x, Tensor) and is_real(limit):
            need_float(who, name, x)
            end = number(who, other, limit, finite=False)
            if math.isnan(end):
                raise ValueError(f"{who}: {other} must not be NaN, which would be everywhere")
            return clamp(x, end, math.inf) if lowest else clamp(x, -math.inf, end)
    return None


@on_demand
@composed
def maximum(a: Any, b: Any) -> Tensor:
    """Return the larger of a and b, element by element; of equal tensors b has the gradient.

    Args:
        a, b: tensors or numbers; NaN where either is.

    Source: torch.maximum.

    Example:
        >>> maximum(tensor([1.0, 5.0]), 2.0).tolist()
        [2.0, 5.0]
    """
    limited = _limited("maximum", a, b, lowest=True)
    if limited is not None:
        return limited
    return where(_truth(step(difference("maximum", a, b))), a, b)


@on_demand
@composed
def minimum(a: Any, b: Any) -> Tensor:
    """Return the smaller of a and b, element by element; see `maximum`."""
    limited = _limited("minimum", a, b, lowest=False)
    if limited is not None:
        return limited
    return where(_truth(step(neg(difference("minimum", a, b)))), a, b)


def _triangle(who: str, x: Tensor, diagonal: int, upper: bool) -> Tensor:
    need_float(who, "x", x)
    need_ndim(who, "x", x, 2, 3, 4)
    k = whole(who, "diagonal", diagonal)
    if x.shape[-1] == x.shape[-2] and (upper, k) in _PARTS:
        return tri(x, _PARTS[upper, k])
    ones = np.ones(x.shape[-2:], np.float32)
    kept = np.triu(ones, k) if upper else np.tril(ones, k)
    found = _kept(x, tensor(kept, "f32", x.device))
    return _truth(found) if is_mask(x.node) else found


@on_demand
@composed
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the lower triangles of matrices; zeros above a diagonal.

    Args:
        x: f32 matrices.
        diagonal: the last that is kept; 0 is the main one, 1 that above it.

    Shape:
        x (..., M, N) -> (..., M, N)

    Raises:
        ShapeError: x has fewer than two axes.

    Source: torch.tril.

    Example:
        >>> tril(ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle("tril", x, diagonal, upper=False)


@on_demand
@composed
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the upper triangles of matrices; see `tril`."""
    return _triangle("triu", x, diagonal, upper=True)
