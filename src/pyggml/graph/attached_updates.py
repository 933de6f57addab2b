# SPDX-License-Identifier: MIT
"""Writes that belong to a computation: every graph that computes the one carries out the other."""

from __future__ import annotations

from ..backend.headers import MOVES
from ..backend.library import ffi
from ..tensors.tensor import Tensor

__all__ = ["on_compute"]


def on_compute(t: Tensor, effect: Tensor) -> Tensor:
    """Let every run of a graph that computes `t` carry out an in-place op as well.

    That is how a layer keeps running statistics: whoever makes the graph need not know of them.
    The op is carried out right after `t`, once in each run; also where the backward computes `t`
    a second time.

    Args:
        t: what an op returned.
        effect: an in-place op of stored tensors and of what `t` is computed from, such as
            `ops.cpy` into a buffer.

    Returns:
        The same tensor `t`.

    Raises:
        ValueError: `t` is stored, so that no graph computes it; or the effect writes nothing.

    Example:
        >>> count = zeros((2,))
        >>> y = exp(count)
        >>> y = on_compute(y, cpy(count + 1.0, count))
        >>> y.tolist(), count.tolist()
        ([1.0, 1.0], [1.0, 1.0])
    """
    for name, value in (("t", t), ("effect", effect)):
        if not isinstance(value, Tensor):
            raise TypeError(f"on_compute: {name} must be a Tensor; got {type(value).__name__}")
        if value.is_stored:
            raise ValueError(f"on_compute: {name} must be what an op returned; got a stored tensor")
    if effect.ptr.view_src == ffi.NULL or effect.ptr.op in MOVES:
        raise ValueError("on_compute: the effect must write in place, as ops.cpy does")
    effect.node.keep = True  # it is carried out once, though the backward may compute t again
    t.node.effects.append(effect.node)
    return t
