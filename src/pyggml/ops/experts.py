# SPDX-License-Identifier: MIT
"""Matmuls with a chosen matrix for each token: mixtures of experts."""

from __future__ import annotations

from ..backend.library import lib
from ..errors import DTypeError, ShapeError, fitting
from ..tensors.autocast import allow_rounding
from ..tensors.record import record
from ..tensors.tensor import Tensor
from .matrices import operand
from .operands import contiguous, need_dtype, need_float, need_ndim, need_tensor
from .rows import check_row_numbers

__all__ = ["add_id", "mul_mat_id"]


@fitting
def mul_mat_id(experts: Tensor, x: Tensor, ids: Tensor) -> Tensor:
    """x @ experts[id]ᵀ, with the matrices chosen token by token.

    Args:
        experts: f32, f16, bf16 or quantised.
        x: f32.
        ids: i32 numbers of experts, K for each token.

    Shape:
        experts (E, M, C), x (T, 1, C) or (T, K, C), ids (T, K) -> (T, K, M)

    Raises:
        ShapeError: the extents do not fit, or an id is not an expert.
        DTypeError: a dtype that ggml does not multiply.

    Source: ggml_mul_mat_id.
    """
    need_tensor("mul_mat_id", "experts", experts)
    need_float("mul_mat_id", "x", x)
    need_tensor("mul_mat_id", "ids", ids)
    need_dtype("mul_mat_id", "ids", ids, "i32")
    if not (experts.dtype.is_float or experts.dtype.quantized):
        raise DTypeError(f"mul_mat_id: experts must be floats; got {experts.dtype.name}")
    need_ndim("mul_mat_id", "experts", experts, 3)
    need_ndim("mul_mat_id", "x", x, 3)
    need_ndim("mul_mat_id", "ids", ids, 2)
    fits = (
        experts.shape[2] == x.shape[2]
        and ids.shape[0] == x.shape[0]
        and ids.shape[1] % x.shape[1] == 0
    )
    if not fits:
        raise ShapeError(
            "mul_mat_id: needs experts (E, M, C), x (T, 1|K, C), ids (T, K);"
            f" got {experts.shape}, {x.shape}, {ids.shape}"
        )
    check_row_numbers("mul_mat_id", "ids", ids, experts.shape[0])
    args = [contiguous(operand(experts)), contiguous(operand(x)), contiguous(ids)]
    product = record(lib.ggml_mul_mat_id, args, (*ids.shape, experts.shape[1]))
    allow_rounding(product.ptr)
    return product


@fitting
def add_id(x: Tensor, bias: Tensor, ids: Tensor) -> Tensor:
    """x + bias[id], the row chosen token by token.

    Shape:
        x (T, K, C), bias (E, C), ids (T, K) i32 -> (T, K, C)

    Raises:
        ShapeError: the extents do not fit, or an id is not a row of bias.

    Source: ggml_add_id.
    """
    need_float("add_id", "x", x)
    need_float("add_id", "bias", bias)
    need_tensor("add_id", "ids", ids)
    need_dtype("add_id", "ids", ids, "i32")
    need_ndim("add_id", "x", x, 3)
    need_ndim("add_id", "bias", bias, 2)
    if ids.shape != x.shape[:2] or bias.shape[1] != x.shape[2]:
        raise ShapeError(
            "add_id: needs x (T, K, C), bias (E, C), ids (T, K);"
            f" got {x.shape}, {bias.shape}, {ids.shape}"
        )
    check_row_numbers("add_id", "ids", ids, bias.shape[0])
    return record(lib.ggml_add_id, [contiguous(x), contiguous(bias), contiguous(ids)], x.shape)
