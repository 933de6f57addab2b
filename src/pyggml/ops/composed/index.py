# SPDX-License-Identifier: MIT
"""`x[...]`: integers, slices with steps, `None`, lists of numbers and masks of NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError, composed, shown
from ...tensors.storage import MAX_DIMS
from ...tensors.tensor import Tensor
from ..operands import need_ndim, need_tensor
from ..shape import getitem as plain
from ..shape import reshape
from .select import index_select, numbers_of

__all__ = ["getitem"]


@composed
def getitem(x: Tensor, index: Any) -> Tensor:
    """Return a part of a tensor, as NumPy's indexing; as a view if possible.

    Args:
        x: the tensor.
        index: whole numbers, slices, `...`, None for a new axis; on one axis a list, an array or
            an i32 tensor of numbers, or an array of booleans; or an array of booleans of x's shape.

    Raises:
        IndexError: an index is out of range or of another kind.
        ShapeError: the part would be empty, or have more than four axes.

    Source: ggml_view_4d; ggml_get_rows for steps and numbers.

    Example:
        >>> x = ones((4, 5, 6))
        >>> x[1:3, 0].shape, x[:, None, ::2, 0].shape, x[[0, 0, 3]].shape
        ((2, 6), (4, 1, 3), (3, 5, 6))
    """
    need_tensor("getitem", "x", x)
    for part in index if type(index) is tuple else (index,):
        if not _is_of_view(part):
            break
    else:
        return plain(x, index)
    given = _one_mask(x, index)
    if given is not None:
        return given
    x, parts = _merged(x, _spread(index, x))
    basic: list[Any] = []  # what a view takes
    later: list[tuple[int, Any]] = []  # numbers on axes of what is left
    shape: list[int | None] = []  # how many axes a part leaves; None for a new one
    axis = 0
    for part in parts:
        if part is None:
            shape.append(None)
            continue
        n = x.shape[axis]
        axis += 1
        if _is_whole(part):
            basic.append(part)
        elif isinstance(part, slice) and part.step in (None, 1):
            basic.append(part)
            shape.append(1)
        else:
            basic.append(slice(None))
            ids = _numbers(part, n, axis - 1, x)
            later.append((sum(kept is not None for kept in shape), ids))
            shape.append(ids.ndim)
    result = plain(x, tuple(basic)) if x.ndim else x
    for at, ids in reversed(later):
        result = _taken(result, at, ids)
    return _with_new_axes(result, shape)


def _is_of_view(part: Any) -> bool:
    """Return True for Python's integers, slices without steps and `...`, the usual parts."""
    return type(part) is int or part is Ellipsis or (type(part) is slice and part.step is None)


def _is_whole(part: Any) -> bool:
    return isinstance(part, (int, np.integer)) and not isinstance(part, bool)


def _merged(x: Tensor, parts: list[Any]) -> tuple[Tensor, list[Any]]:
    """Make one axis of those that lists of numbers name together: x[[0, 1], [2, 0]]."""
    lists = [i for i, p in enumerate(parts) if not (_is_whole(p) or p is None or _is_slice(p))]
    if not lists:
        return x, parts
    chosen = [i for i, part in enumerate(parts) if i in lists or _is_whole(part)]
    if chosen != list(range(chosen[0], chosen[-1] + 1)):
        raise IndexError(
            "getitem: index may hold a list and other numbers side by side only; take one after"
            " the other, as x[0][:, [1, 2]]"
        )
    if len(chosen) == 1:
        return x, parts
    axis = sum(part is not None for part in parts[: chosen[0]])
    extents = x.shape[axis : axis + len(chosen)]
    numbers = []
    for i, n in zip(chosen, extents, strict=True):
        ids = _numbers([parts[i]] if _is_whole(parts[i]) else parts[i], n, axis, x)
        array = ids.numpy() if isinstance(ids, Tensor) else ids
        numbers.append(np.where((array < 0) & (array >= -n), array + n, array))
    try:
        flat = np.ravel_multi_index(np.broadcast_arrays(*numbers), extents)
    except ValueError:
        raise IndexError(
            "getitem: lists of numbers must broadcast, and be in range; got shapes"
            f" {[each.shape for each in numbers]}"
        ) from None
    merged = (*x.shape[:axis], math.prod(extents), *x.shape[axis + len(chosen) :])
    return reshape(x, merged), [*parts[: chosen[0]], flat, *parts[chosen[-1] + 1 :]]


def _is_slice(part: Any) -> bool:
    return isinstance(part, slice)


def _one_mask(x: Tensor, index: Any) -> Tensor | None:
    """Return the elements where an array of booleans of x's shape is true."""
    array = index if isinstance(index, np.ndarray) else None
    if array is None or array.dtype != bool or array.ndim < 2:
        return None
    if array.shape != x.shape:
        raise IndexError(
            f"getitem: index, a mask, must have the shape of x, {x.shape}; got {array.shape}"
        )
    return _taken(reshape(x, (x.numel(),)), 0, np.flatnonzero(array))


def _numbers(part: Any, n: int, axis: int, x: Tensor) -> Any:
    """Return the numbers of a slice with a step, a list, an array, booleans, or a tensor."""
    if isinstance(part, slice):
        try:
            return np.arange(n)[part]
        except (TypeError, ValueError) as error:
            raise IndexError(
                f"getitem: index must hold whole numbers; got {shown(part)} on axis {axis}"
                f" ({error})"
            ) from None
    if isinstance(part, Tensor):
        if part.dtype.name != "i32":
            raise IndexError(
                "getitem: index, a tensor, must be i32 numbers; got"
                f" {part.dtype.name}: for a mask use pg.where(mask, x, 0.0), or x[mask.numpy() > 0]"
            )
        return part
    try:
        array = np.asarray(part)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype == bool and array.ndim == 1:
        if len(array) != n:
            raise IndexError(
                f"getitem: index, a mask of axis {axis}, must have {n} elements; got {array.size}"
            )
        return np.flatnonzero(array)
    if array.dtype.kind not in "iu":
        raise IndexError(
            "getitem: index must be whole numbers, slices, None, ..., or lists of whole numbers;"
            f" got {shown(part)}"
        )
    return numbers_of("getitem", "index", array, n, x)


def _taken(x: Tensor, axis: int, ids: Any) -> Tensor:
    if not isinstance(ids, Tensor):  # of a slice or a mask
        if not len(ids):
            raise ShapeError("getitem: index takes no element of x; ggml has no empty tensors")
        return index_select(x, axis, ids)
    if ids.ndim == 1:
        return index_select(x, axis, ids)
    need_ndim("getitem", "index", ids, 0, 1, 2, 3)
    found = index_select(x, axis, reshape(ids, (ids.numel(),)))
    return reshape(found, _joined(x.shape[:axis], ids.shape, x.shape[axis + 1 :]))


def _joined(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    shape = tuple(n for part in shapes for n in part)
    if len(shape) > MAX_DIMS:
        raise ShapeError(f"getitem: the result must have at most {MAX_DIMS} axes; got {shape}")
    return shape


def _with_new_axes(x: Tensor, shape: list[int | None]) -> Tensor:
    if None not in shape:
        return x
    extents, new = list(x.shape), []
    for count in shape:
        new += [1] if count is None else extents[:count]
        extents = extents[count or 0 :]
    return reshape(x, _joined(tuple(new)))


def _spread(index: Any, x: Tensor) -> list[Any]:
    """Return an index for each axis, `...` filled in; None stays."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("getitem: index may hold one ... at most")
    named = sum(part is not None for part in parts) - len(dots)
    if named > x.ndim:
        raise IndexError(
            f"getitem: index must have at most {x.ndim} parts, x.shape={x.shape}; got {named}"
        )
    at = dots[0] if dots else len(parts)
    fill = [slice(None)] * (x.ndim - named)
    return [*parts[:at], *fill, *parts[at + len(dots) :]]
