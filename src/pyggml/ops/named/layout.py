# SPDX-License-Identifier: MIT
"""Axes, parts and order under PyTorch's names, made of ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...checks import choice, flag, whole
from ...errors import ShapeError, composed, fitting, shown
from ...tensors.create import check_room
from ...tensors.operators import register
from ...tensors.tensor import Tensor
from ..composed.join import cat, flatten, unsqueeze
from ..composed.reduce import std, var
from ..composed.select import ValuesIndices, index_select, topk
from ..operands import axis_of, broadcast, need_float, need_ndim, need_tensor, need_wholes
from ..reductions import mean
from ..shape import broadcast_to, getitem, permute, reshape, transpose

__all__ = [
    "argsort",
    "broadcast_tensors",
    "concat",
    "concatenate",
    "hstack",
    "is_tensor",
    "meshgrid",
    "moveaxis",
    "movedim",
    "ravel",
    "repeat_interleave",
    "select",
    "sort",
    "std_mean",
    "swapaxes",
    "swapdims",
    "var_mean",
    "vstack",
]


@fitting
def is_tensor(x: Any) -> bool:
    """Return True for a tensor.

    Example:
        >>> pg.is_tensor(pg.ones(2)), pg.is_tensor([1.0])
        (True, False)
    """
    return isinstance(x, Tensor)


@composed
def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Put tensors one after another along an axis; see `pg.cat`."""
    return cat(tensors, dim)


@composed
def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Put tensors one after another along an axis; see `pg.cat`."""
    return cat(tensors, dim)


@composed
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Put tensors beside each other: along the second axis, vectors along their only one.

    Example:
        >>> pg.hstack([pg.ones(2, 1), pg.ones(2, 3)]).shape
        (2, 4)
    """
    return cat(tensors, min(_least_axes("hstack", tensors) - 1, 1))


@composed
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Put tensors below each other: along the first axis, vectors as rows.

    Example:
        >>> pg.vstack([pg.ones(3), pg.ones(3)]).shape
        (2, 3)
    """
    _least_axes("vstack", tensors)
    return cat([unsqueeze(x, 0) if x.ndim == 1 else x for x in tensors], 0)


def _least_axes(who: str, tensors: Any) -> int:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise TypeError(f"{who}: tensors must be a list of tensors; got {shown(tensors)}")
    least = min(need_tensor(who, "tensors", x).ndim for x in tensors)
    if least < 1:
        raise ShapeError(f"{who}: tensors must have an axis; got a scalar: use pg.stack(tensors)")
    return least


@composed
def ravel(x: Tensor) -> Tensor:
    """Return the elements as one axis.

    Example:
        >>> pg.ravel(pg.ones(2, 3)).shape
        (6,)
    """
    return reshape(x, (-1,)) if need_tensor("ravel", "x", x).ndim == 0 else flatten(x)


@composed
def swapaxes(x: Tensor, axis0: int, axis1: int) -> Tensor:
    """Swap two axes; see `pg.transpose`."""
    return transpose(x, axis0, axis1)


@composed
def swapdims(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swap two axes; see `pg.transpose`."""
    return transpose(x, dim0, dim1)


@composed
def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Move axes to other places; the others keep their order.

    Args:
        x: the tensor.
        source: an axis, or several.
        destination: the place of each.

    Raises:
        ShapeError: x has no such axis, or one is named twice.

    Source: torch.movedim.

    Example:
        >>> pg.movedim(pg.ones(2, 3, 4), 0, -1).shape
        (3, 4, 2)
    """
    need_tensor("movedim", "x", x)
    found = []
    for name, given in (("source", source), ("destination", destination)):
        axes = need_wholes("movedim", name, given if isinstance(given, (list, tuple)) else [given])
        found.append([axis_of("movedim", axis, x.ndim, name) for axis in axes])
    if len(found[0]) != len(found[1]) or any(len(set(axes)) < len(axes) for axes in found):
        raise ShapeError(
            "movedim: source and destination must be as many axes, each named once; got"
            f" {shown(source)} and {shown(destination)}"
        )
    order = [axis for axis in range(x.ndim) if axis not in found[0]]
    for place, axis in sorted(zip(found[1], found[0], strict=True)):
        order.insert(place, axis)
    return permute(x, order)


@composed
def moveaxis(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Move axes to other places; see `pg.movedim`."""
    return movedim(x, source, destination)


@composed
def select(x: Tensor, dim: int, index: int) -> Tensor:
    """Return the elements of an axis with one number, without that axis.

    Example:
        >>> pg.select(pg.ones(2, 3), 1, 0).shape
        (2,)
    """
    axis = axis_of("select", dim, need_tensor("select", "x", x).ndim, "dim")
    n = x.shape[axis]
    place = whole("select", "index", index, -n, n - 1)
    return getitem(x, (*(slice(None),) * axis, place))


@composed
def broadcast_tensors(*tensors: Tensor) -> list[Tensor]:
    """Return tensors stretched to the shape that all of them broadcast to.

    Example:
        >>> [x.shape for x in pg.broadcast_tensors(pg.ones(2, 1), pg.ones(3))]
        [(2, 3), (2, 3)]
    """
    for x in tensors:
        need_tensor("broadcast_tensors", "tensors", x)
    shape = broadcast("broadcast_tensors", **{f"x{i}": x.shape for i, x in enumerate(tensors)})
    return [broadcast_to(x, shape) for x in tensors]


@composed
def meshgrid(*tensors: Any, indexing: str = "ij") -> list[Tensor]:
    """Return the coordinates of a grid, a tensor for each axis.

    Args:
        tensors: the coordinates along each axis, one by one or as one list.
        indexing: "ij", where the first runs along the first axis, or "xy", along the second.

    Raises:
        ShapeError: a tensor has not one axis.

    Source: torch.meshgrid.

    Example:
        >>> a, b = pg.meshgrid(pg.ones(2), pg.ones(3))
        >>> a.shape, b.shape
        ((2, 3), (2, 3))
    """
    choice("meshgrid", "indexing", indexing, ("ij", "xy"))
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    for x in given:
        need_ndim("meshgrid", "tensors", x, 1)
    shape = tuple(x.shape[0] for x in given)
    columns = [reshape(x, [-1 if j == i else 1 for j in range(len(given))])
               for i, x in enumerate(given)]  # fmt: skip
    grids = [broadcast_to(x, shape) for x in columns]
    return [transpose(x, 0, 1) for x in grids] if indexing == "xy" and len(shape) > 1 else grids


@composed
def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None) -> Tensor:
    """Repeat each element of an axis, one beside the other.

    Args:
        x: the tensor.
        repeats: how often: one whole number, or one for each element.
        dim: the axis; None takes all elements in their order.

    Raises:
        ShapeError: x has no such axis, or repeats is not as long.
        ValueError: a number is below 0, or nothing is left.

    Source: torch.repeat_interleave; ggml_get_rows.

    Example:
        >>> pg.repeat_interleave(pg.tensor([1.0, 2.0]), 2).tolist()
        [1.0, 1.0, 2.0, 2.0]
    """
    if dim is None:
        x, dim = ravel(x), 0
    axis = axis_of("repeat_interleave", dim, need_tensor("repeat_interleave", "x", x).ndim, "dim")
    given = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    several = isinstance(given, (list, tuple))
    numbers = need_wholes("repeat_interleave", "repeats", given if several else [given])
    if several and len(numbers) not in (1, x.shape[axis]):
        raise ShapeError(
            f"repeat_interleave: repeats must be one number, or {x.shape[axis]}, the extent of x"
            f" along dim={dim}; got {len(numbers)}"
        )
    if min(numbers) < 0 or max(numbers) == 0:
        raise ValueError(f"repeat_interleave: repeats must be >= 1; got {shown(repeats)}")
    total = sum(numbers) * (1 if len(numbers) > 1 else x.shape[axis])
    check_room("repeat_interleave", total)
    return index_select(x, axis, np.repeat(np.arange(x.shape[axis], dtype=np.int32), numbers))


@composed
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> ValuesIndices:
    """Return the elements of an axis in order, and their places.

    A NaN is larger than all numbers; on CUDA and Metal its place is undefined.

    Args:
        x: f32.
        dim: the axis.
        descending: the largest first.

    Returns:
        `values`, through which gradients flow, and `indices`, i32.

    Raises:
        ShapeError: x has no such axis.

    Source: torch.sort; ggml_argsort.

    Example:
        >>> values, places = pg.sort(pg.tensor([3.0, 1.0, 2.0]))
        >>> values.tolist(), places.tolist()
        ([1.0, 2.0, 3.0], [1, 2, 0])
    """
    axis = axis_of("sort", dim, need_float("sort", "x", x).ndim, "dim")
    return topk(x, x.shape[axis], axis, flag("sort", "descending", descending))


@composed
def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Return the places of the elements of an axis in order; see `sort`.

    Example:
        >>> pg.argsort(pg.tensor([3.0, 1.0, 2.0])).tolist()
        [1, 2, 0]
    """
    return sort(x, dim, descending).indices


@composed
def std_mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, correction: float = 1.0) -> Any:
    """Return the standard deviation and the mean, over axes or of all; see `pg.std`.

    Example:
        >>> [x.item() for x in pg.std_mean(pg.tensor([1.0, 3.0]), correction=0)]
        [1.0, 2.0]
    """
    return std(x, dim, keepdim, correction=correction), mean(x, dim, keepdim)


@composed
def var_mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, correction: float = 1.0) -> Any:
    """Return the variance and the mean, over axes or of all; see `pg.var`.

    Example:
        >>> [x.item() for x in pg.var_mean(pg.tensor([1.0, 3.0]), correction=0)]
        [1.0, 2.0]
    """
    return var(x, dim, keepdim, correction=correction), mean(x, dim, keepdim)


for _fn in (
    argsort, moveaxis, movedim, ravel, repeat_interleave, select, sort, swapaxes, swapdims,
):  # fmt: skip
    register(_fn.__name__, _fn)
