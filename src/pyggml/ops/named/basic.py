# SPDX-License-Identifier: MIT
"""Ops under PyTorch's names and with its arguments, where `pyggml.ops` has ggml's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...checks import number
from ...errors import ShapeError, composed, shown
from ...tensors.operators import register
from ...tensors.tensor import Tensor
from .. import elementwise, layout
from ..composed import reduce
from ..operands import axis_of, need_float, need_wholes
from ..shape import reshape

__all__ = ["clamp", "norm", "roll", "sign", "square"]


@composed
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; its gradient is 0.

    Example:
        >>> pg.sign(pg.tensor([-2.0, 0.0, 3.0])).tolist()
        [-1.0, 0.0, 1.0]
    """
    return elementwise.sgn(x)


@composed
def square(x: Tensor) -> Tensor:
    """x².

    Example:
        >>> pg.square(pg.tensor([3.0])).item()
        9.0
    """
    return elementwise.sqr(x)


@composed
def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """x held between two numbers; None is no limit.

    Args:
        x: f32.
        min: the least.
        max: the most.

    Raises:
        TypeError: a limit is not a number.
        ValueError: min > max.

    Source: torch.clamp; ggml_clamp.

    Example:
        >>> pg.clamp(pg.tensor([-2.0, 0.5, 2.0]), min=-1.0, max=1.0).tolist()
        [-1.0, 0.5, 1.0]
    """
    least = -math.inf if min is None else min
    return elementwise.clamp(x, least, math.inf if max is None else max)


@composed
def norm(
    x: Tensor, p: float = 2.0, dim: int | Sequence[int] | None = None, keepdim: bool = False
) -> Tensor:
    """Return (sum of |x|^p)^(1/p) over axes, or over all elements; see `ops.vector_norm`.

    Args:
        x: f32.
        p: 1, 2 or another number above 0, or inf for the largest magnitude.
        dim: an axis, several, or None for all.
        keepdim: leave the axes with extent one.

    Raises:
        ShapeError: x has no such axis.
        ValueError: p is not above 0.

    Source: torch.norm.

    Example:
        >>> pg.norm(pg.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1).tolist()
        [5.0, 10.0]
    """
    order = number("norm", "p", p, finite=False)
    if not order > 0:
        raise ValueError(
            f"norm: p must be > 0, or inf; got {shown(p)}: x.count_nonzero() is the norm of 0"
        )
    return reduce.vector_norm(x, order, dim, keepdim)


@composed
def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Move elements along axes; what leaves at one end enters at the other.

    Args:
        x: f32.
        shifts: one for each of `dims`, positive towards the end.
        dims: the axes; None moves the elements in their order, as if there were one axis.

    Raises:
        ShapeError: x has no such axis, or there are more shifts than dims, or fewer.

    Source: torch.roll; ggml_roll. `ops.roll` takes a shift for each of the last axes.

    Example:
        >>> pg.roll(pg.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, 0).tolist()
        [[3.0, 4.0], [1.0, 2.0]]
    """
    need_float("roll", "x", x)
    steps = _wholes("shifts", shifts)
    if dims is None:
        if len(steps) != 1:
            raise ShapeError(f"roll: shifts must be one number without dims; got {shown(shifts)}")
        return reshape(layout.roll(reshape(x, (x.numel(),)), steps), x.shape)
    axes = [axis_of("roll", dim, x.ndim, "dims") for dim in _wholes("dims", dims)]
    if len(axes) != len(steps):
        raise ShapeError(
            f"roll: shifts must be one for each of dims; got {shown(shifts)} and {shown(dims)}"
        )
    moved = [0] * x.ndim
    for axis, step in zip(axes, steps, strict=True):
        moved[axis] += step
    return layout.roll(x, moved)


def _wholes(name: str, given: Any) -> list[int]:
    return list(need_wholes("roll", name, given if isinstance(given, (list, tuple)) else [given]))


register("norm", norm)
