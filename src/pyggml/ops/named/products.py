# SPDX-License-Identifier: MIT
"""Matrix products and diagonals under PyTorch's names, made of ops."""

from __future__ import annotations

import math
from typing import Any

from ...checks import number, whole
from ...errors import ShapeError, composed, shown
from ...tensors.filled import eye
from ...tensors.operators import register
from ...tensors.tensor import Tensor
from ...tensors.truth import as_mask_of
from ..composed.join import unsqueeze
from ..composed.products import bmm, mm
from ..composed.reduce import vector_norm
from ..composed.select import index_select
from ..elementwise import add, mul, scale, sub
from ..layout import pad
from ..operands import axis_of, need_float, need_ndim, need_wholes
from ..reductions import sum
from ..shape import permute, reshape

__all__ = ["addmm", "baddbmm", "cdist", "diag", "diagonal", "inner", "tensordot", "trace"]


@composed
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta · x + alpha · a @ b, of matrices.

    Example:
        >>> pg.addmm(pg.ones(1), pg.ones(2, 3), pg.ones(3, 1)).tolist()
        [[4.0], [4.0]]
    """
    return _added("addmm", x, mm(a, b), beta, alpha)


@composed
def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta · x + alpha · a @ b, of batches of matrices.

    Example:
        >>> pg.baddbmm(pg.ones(1), pg.ones(1, 2, 3), pg.ones(1, 3, 1)).tolist()
        [[[4.0], [4.0]]]
    """
    return _added("baddbmm", x, bmm(a, b), beta, alpha)


def _added(who: str, x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    left, right = (number(who, name, n) for name, n in (("beta", beta), ("alpha", alpha)))
    return add(scale(need_float(who, "x", x), left), scale(product, right))


@composed
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Return the sums of products over several axes of two tensors.

    Args:
        a: f32.
        b: f32.
        dims: how many of the last axes of a and the first of b; or the axes of a and those of b.

    Raises:
        ShapeError: the extents differ, or the result has more than four axes.

    Source: torch.tensordot.

    Example:
        >>> pg.tensordot(pg.ones(2, 3, 4), pg.ones(3, 4, 5)).shape
        (2, 5)
    """
    left, right = _contracted(
        need_float("tensordot", "a", a), need_float("tensordot", "b", b), dims
    )
    extents = [a.shape[i] for i in left]
    if extents != [b.shape[i] for i in right]:
        raise ShapeError(
            f"tensordot: a and b must have the same extents along dims; got a.shape={a.shape},"
            f" b.shape={b.shape}, dims={shown(dims)}"
        )
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    size = math.prod(extents)
    x = reshape(permute(a, [*rows, *left]), (-1, size)) if a.ndim > 1 else reshape(a, (-1, size))
    y = permute(b, [*right, *columns]) if b.ndim > 1 else b
    shape = [*(a.shape[i] for i in rows), *(b.shape[i] for i in columns)]
    return reshape(mm(x, reshape(y, (size, -1))), shape)


def _contracted(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    """Return the axes of both over which `tensordot` sums."""
    if not isinstance(dims, (list, tuple)):
        count = whole("tensordot", "dims", dims, 1, min(a.ndim, b.ndim))
        return list(range(a.ndim - count, a.ndim)), list(range(count))
    if len(dims) != 2:
        raise ShapeError(
            f"tensordot: dims must be a number, or axes of a and of b; got {shown(dims)}"
        )
    given = [each if isinstance(each, (list, tuple)) else [each] for each in dims]
    left, right = (
        [axis_of("tensordot", axis, x.ndim, "dims", of) for axis in need_wholes(
            "tensordot", "dims", axes
        )]
        for axes, x, of in zip(given, (a, b), "ab", strict=True)
    )  # fmt: skip
    return left, right


@composed
def inner(a: Tensor, b: Tensor) -> Tensor:
    """Return the sums of products along the last axes of two tensors.

    Example:
        >>> pg.inner(pg.ones(2, 3), pg.ones(4, 3)).shape
        (2, 4)
    """
    return tensordot(a, b, ([-1], [-1]))


@composed
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the diagonals of matrices, copied, as the last axis.

    Args:
        x: f32.
        offset: above 0 a diagonal above the main one, below 0 one below it.
        dim1: the axis of the rows.
        dim2: the axis of the columns.

    Raises:
        ShapeError: there are no such axes, or there is no such diagonal.

    Source: torch.diagonal.

    Example:
        >>> pg.diagonal(pg.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [1.0, 4.0]
    """
    need_ndim("diagonal", "x", need_float("diagonal", "x", x), 2, 3, 4)
    rows, columns = (
        axis_of("diagonal", dim1, x.ndim, "dim1"),
        axis_of("diagonal", dim2, x.ndim, "dim2"),
    )
    if rows == columns:
        raise ShapeError(f"diagonal: dim1 and dim2 must be two axes; got {dim1} and {dim2}")
    k, n, m = whole("diagonal", "offset", offset), x.shape[rows], x.shape[columns]
    if not -n < k < m:
        raise ShapeError(f"diagonal: offset must be from {1 - n} to {m - 1}; got {k}")
    rest = [axis for axis in range(x.ndim) if axis not in (rows, columns)]
    moved = reshape(permute(x, [*rest, rows, columns]), [*(x.shape[i] for i in rest), n * m])
    first, steps = max(0, -k), min(n + min(k, 0), m - max(k, 0))
    places = [i * m + i + k for i in range(first, first + steps)]
    return index_select(moved, -1, places)


@composed
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """Return the matrix with a vector on its diagonal, or the diagonal of a matrix.

    Args:
        x: f32, a vector or a matrix.
        diagonal: above 0 a diagonal above the main one, below 0 one below it.

    Raises:
        ShapeError: x has other axes, or there is no such diagonal.

    Source: torch.diag. `ops.diag` is ggml's, of rows.

    Example:
        >>> pg.diag(pg.tensor([1.0, 2.0])).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    need_ndim("diag", "x", need_float("diag", "x", x), 1, 2)
    if x.ndim == 2:
        return _diagonal_of(x, diagonal)
    k = whole("diag", "diagonal", diagonal)
    square = mul(unsqueeze(x, 0), eye(x.shape[0], device=x.device))
    as_mask_of(x.node, square.node)
    return pad(square, [(max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))]) if k else square


_diagonal_of = diagonal


@composed
def trace(x: Tensor) -> Tensor:
    """Return the sum of the diagonal of a matrix.

    Example:
        >>> pg.trace(pg.ones(3, 3)).item()
        3.0
    """
    need_ndim("trace", "x", x, 2)
    return sum(diagonal(x))


@composed
def cdist(a: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances between the rows of two matrices, or of batches of them.

    Args:
        a: f32.
        b: f32.
        p: of the norm, see `ops.vector_norm`.

    Shape:
        a (..., T, C), b (..., S, C) -> (..., T, S)

    Raises:
        ShapeError: the widths differ.

    Source: torch.cdist.

    Example:
        >>> pg.cdist(pg.zeros(1, 2), pg.tensor([[3.0, 4.0]])).item()
        5.0
    """
    for name, x in (("a", a), ("b", b)):
        need_ndim("cdist", name, need_float("cdist", name, x), 2, 3)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"cdist: a and b must have rows of one width; got a.shape={a.shape}, b.shape={b.shape}"
        )
    return vector_norm(sub(unsqueeze(a, -2), unsqueeze(b, -3)), p, -1)


for _fn in (addmm, baddbmm, diagonal, inner, trace):
    register(_fn.__name__, _fn)
