# SPDX-License-Identifier: MIT
"""ggml's quantisers, with the importance of each column."""

from __future__ import annotations

import numpy as np

from ..errors import DTypeError, ShapeError
from .dtypes import DType
from .library import ffi, lib

__all__ = ["quantize_rows"]


def quantize_rows(
    rows: np.ndarray, dtype: DType, importance: np.ndarray | None = None
) -> np.ndarray:
    """Return the bytes of rows in a type.

    Args:
        rows: contiguous, finite.
        dtype: f32, f16, bf16 or a quantised type.
        importance: weight of the squared error of each column; None has the quantiser's own.

    Shape:
        rows (R, C) f32, importance (C,) f32 -> (R, bytes of a row) uint8

    Raises:
        DTypeError: ggml cannot write the type, or not without importance.
        ShapeError: rows are no whole blocks.

    Source: ggml_quantize_chunk.

    Example:
        >>> from pyggml.backend.dtypes import as_dtype
        >>> quantize_rows(np.ones((2, 32), np.float32), as_dtype("q8_0")).shape
        (2, 34)
    """
    if rows.ndim != 2 or rows.dtype != np.float32 or rows.shape[1] % dtype.block_size:
        raise ShapeError(
            f"quantize_rows: rows must be (R, C) f32 with C a multiple of {dtype.block_size}; got"
            f" {rows.shape} {rows.dtype}"
        )
    if dtype.quantized and not dtype.is_readable:
        raise DTypeError(f"quantize_rows: {dtype.name} is for ggml's own use; use q8_0")
    if importance is None and lib.ggml_quantize_requires_imatrix(dtype.ggml_type):
        raise DTypeError(
            f"quantize_rows: {dtype.name} needs an importance matrix; got none: give one, or"
            " choose a larger type, such as q4_K"
        )
    source = np.ascontiguousarray(rows)
    scales = None if importance is None else np.ascontiguousarray(importance, np.float32)
    if scales is not None and scales.shape != (rows.shape[1],):
        raise ShapeError(
            f"quantize_rows: importance must be ({rows.shape[1]},); got {scales.shape}"
        )
    out = np.empty((rows.shape[0], dtype.row_bytes(rows.shape[1])), np.uint8)
    if out.size:
        lib.ggml_quantize_chunk(
            dtype.ggml_type,
            ffi.cast("float *", source.ctypes.data),
            ffi.cast("void *", out.ctypes.data),
            0,
            rows.shape[0],
            rows.shape[1],
            ffi.NULL if scales is None else ffi.cast("float *", scales.ctypes.data),
        )
    return out
