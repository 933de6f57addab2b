# SPDX-License-Identifier: MIT
"""Matrix multiplication."""

from __future__ import annotations

import math
from typing import Any

from ..backend.library import lib
from ..errors import DTypeError, ShapeError, fitting
from ..tensors.autocast import allow_rounding, rounds_operands
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.tensor import Tensor
from .operands import as_tensor, broadcast, contiguous, need_dtype, need_float, need_tensor
from .shape import broadcast_to, cast, reshape, reshaped, transpose

__all__ = ["linear", "matmul", "mul_mat", "operand", "out_prod", "rows_in_order", "solve_tri"]


def rows_in_order(x: Tensor) -> Tensor:
    """Return `x` with its rows in order: ggml's matmul takes any strides of the other axes."""
    if not x.ptr.view_src:  # ggml made it as it lies
        return x
    nb = x.ptr.nb
    if nb[0] == x.dtype.type_size and nb[1] >= nb[0]:
        return x
    # Not contiguous(): ggml calls a permuted tensor ordered when the moved extents are ones.
    return record(lib.ggml_cont, [x], x.shape)


def operand(x: Tensor) -> Tensor:
    """Return `x`, rounded if `autocast` asks for it; gradients pass to `x` unrounded."""
    if not rounds_operands() or x.dtype.name != "f32":
        return x
    return cast(cast(x, "f16"), "f32")


@on_demand
def mul_mat(w: Tensor, x: Tensor) -> Tensor:
    """x @ wᵀ, ggml's matmul.

    Leading axes of w stretch over those of x: extents of x must be multiples, and neighbouring
    matrices of x share one of w (grouped-query heads).

    Args:
        w: f32, f16, bf16 or quantised.
        x: f32.

    Shape:
        w (..., M, K), x (..., N, K) -> (..., N, M); w (M, K) takes x (..., K)

    Raises:
        ShapeError: the last axes differ, or leading extents are no multiples.
        DTypeError: a dtype that ggml does not multiply.

    Source: ggml_mul_mat.

    Example:
        >>> mul_mat(ones((5, 4)), ones((2, 3, 4))).shape
        (2, 3, 5)
    """
    need_tensor("mul_mat", "w", w)
    need_float("mul_mat", "x", x)
    if not (w.dtype.is_float or w.dtype.quantized):
        raise DTypeError(f"mul_mat: w must be a float or quantised dtype; got {w.dtype.name}")
    if w.ndim < 2 or x.ndim < 1 or w.shape[-1] != x.shape[-1]:
        raise ShapeError(
            "mul_mat: w (..., M, K) and x (..., N, K) must share K;"
            f" got w.shape={w.shape}, x.shape={x.shape}"
        )
    if w.ndim == 2:
        # One product of all rows at once: the weight's gradient then is one product, too.
        rows = reshaped(x, (math.prod(x.shape[:-1]), x.shape[-1]))
        result = _mul_mat(w, rows, (rows.shape[0], w.shape[0]))
        return reshaped(result, (*x.shape[:-1], w.shape[0]))
    lead_w, lead_x = w.shape[:-2], x.shape[:-2]
    if len(lead_w) > len(lead_x) or any(
        nx % nw for nx, nw in zip(lead_x[::-1], lead_w[::-1], strict=False)
    ):
        raise ShapeError(
            "mul_mat: leading extents of x must be multiples of those of w;"
            f" got w.shape={w.shape}, x.shape={x.shape}"
        )
    return _mul_mat(w, x, (*x.shape[:-1], w.shape[-2]))


def _mul_mat(w: Tensor, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    args = [rows_in_order(operand(w)), rows_in_order(operand(x))]
    product = record(lib.ggml_mul_mat, args, shape)
    allow_rounding(product.ptr)
    return product


@on_demand
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weightᵀ + bias.

    Shape:
        x (..., K), weight (M, K), bias (M,) -> (..., M)

    Raises:
        ShapeError: the extents do not fit.

    Source: ggml_mul_mat, ggml_add.
    """
    need_float("linear", "x", x)
    need_tensor("linear", "weight", weight)
    if not (weight.dtype.is_float or weight.dtype.quantized):
        raise DTypeError(
            f"linear: weight must be a float or quantised dtype; got {weight.dtype.name}"
        )
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            "linear: x.shape[-1] must equal in_features of weight (out_features, in_features);"
            f" got x.shape={x.shape}, weight.shape={weight.shape}"
        )
    if bias is None:
        return mul_mat(weight, x)
    need_float("linear", "bias", bias)
    if bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"linear: bias must be (out_features,) = {weight.shape[:1]}, as weight.shape[0] is;"
            f" got bias.shape={bias.shape}"
        )
    return mul_mat(weight, x) + bias


@on_demand
def matmul(a: Any, b: Any) -> Tensor:
    """a @ b as NumPy has it, for up to four axes.

    Shape:
        a (..., N, K), b (..., K, M) -> (..., N, M); vectors as in numpy.matmul

    Raises:
        ShapeError: K differs, an operand is a scalar, or leading axes do not broadcast.
        DTypeError: an operand is not f32.

    Source: ggml_mul_mat.

    Example:
        >>> matmul(ones((2, 3)), ones((3, 4))).shape
        (2, 4)
    """
    like = a if isinstance(a, Tensor) else need_tensor("matmul", "a or b", b)
    a, b = as_tensor("matmul", "a", a, like), as_tensor("matmul", "b", b, like)
    for name, x in (("a", a), ("b", b)):
        need_dtype("matmul", name, x, "f32")
        if x.ndim == 0:
            raise ShapeError(f"matmul: {name} must have an axis; got a scalar; use *")
    left = a if a.ndim > 1 else reshape(a, (1, a.numel()))
    right = b if b.ndim > 1 else reshape(b, (b.numel(), 1))
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            "matmul: a.shape[-1] must equal b.shape[-2] (or the length of a vector);"
            f" got a.shape={a.shape}, b.shape={b.shape}"
        )
    lead = broadcast("matmul", a=left.shape[:-2], b=right.shape[:-2])
    left = broadcast_to(left, (*lead, *left.shape[-2:])) if left.shape[:-2] != lead else left
    result = mul_mat(contiguous(transpose(right)), left)
    shape = result.shape
    if a.ndim == 1:
        shape = (*shape[:-2], shape[-1])
    if b.ndim == 1:
        shape = shape[:-1]
    return reshape(result, shape)


@on_demand
def out_prod(a: Tensor, b: Tensor) -> Tensor:
    """Sum over rows of the outer products of a's and b's rows: bᵀ @ a.

    Shape:
        a (..., K, N), b (..., K, M) -> (..., M, N)

    Raises:
        ShapeError: K differs, or leading extents of b are no multiples of a's.

    Source: ggml_out_prod.
    """
    need_float("out_prod", "a", a)
    need_float("out_prod", "b", b)
    if a.ndim < 2 or b.ndim < a.ndim or a.shape[-2] != b.shape[-2]:
        raise ShapeError(
            "out_prod: a (..., K, N) and b (..., K, M) must share K;"
            f" got a.shape={a.shape}, b.shape={b.shape}"
        )
    leads = zip(b.shape[:-2][::-1], a.shape[:-2][::-1], strict=False)
    if any(nb % na for nb, na in leads):
        raise ShapeError(
            f"out_prod: leading extents of b must be multiples of a's; got {b.shape}, {a.shape}"
        )
    shape = (*b.shape[:-2], b.shape[-1], a.shape[-1])
    product = record(lib.ggml_out_prod, [contiguous(operand(a)), contiguous(operand(b))], shape)
    allow_rounding(product.ptr)
    return product


@fitting
def solve_tri(a: Tensor, b: Tensor) -> Tensor:
    """Solve a @ x = b for x, with a lower triangular; elements above the diagonal are not read.

    Shape:
        a (..., N, N), b (..., N, K) -> (..., N, K)

    Raises:
        ShapeError: a is not square, or the extents differ.

    Source: ggml_solve_tri.

    Example:
        >>> solve_tri(tensor([[2.0, 0.0], [1.0, 1.0]]), tensor([[2.0], [3.0]])).tolist()
        [[1.0], [2.0]]
    """
    need_float("solve_tri", "a", a)
    need_float("solve_tri", "b", b)
    if a.ndim < 2 or a.ndim != b.ndim or a.shape[-1] != a.shape[-2] or a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(
            f"solve_tri: needs a (..., N, N) and b (..., N, K); got a.shape={a.shape},"
            f" b.shape={b.shape}"
        )
    return record(lib.ggml_solve_tri, [contiguous(a), contiguous(b), True, True, False], b.shape)
