# SPDX-License-Identifier: MIT
"""Normalisation over the last axis."""

from __future__ import annotations

from .._lib import lib
from ..errors import ShapeError
from ..tensor import Tensor, record
from ._check import contiguous, is_scalar, need_float

__all__ = ["norm", "rms_norm"]


def _check(who: str, x: Tensor, eps: float) -> None:
    need_float(who, "x", x)
    if x.ndim == 0:
        raise ShapeError(f"{who}: x must have an axis; got a scalar")
    if not is_scalar(eps) or not eps >= 0:
        raise ValueError(f"{who}: eps must be at least 0; got {eps!r}")


def norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) of each row.

    Args:
        x: f32 tensor.
        eps: added to the variance.

    Shape:
        x (..., C) -> (..., C)

    Raises:
        ValueError: eps is negative.

    Source: ggml_norm; Ba et al. 2016, arXiv:1607.06450.
    """
    _check("norm", x, eps)
    return record(lib.ggml_norm, [contiguous(x), float(eps)], x.shape)


def rms_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x²) + eps) of each row.

    Args:
        x: f32 tensor.
        eps: added to the mean square.

    Shape:
        x (..., C) -> (..., C)

    Raises:
        ValueError: eps is negative.

    Source: ggml_rms_norm; Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    _check("rms_norm", x, eps)
    return record(lib.ggml_rms_norm, [contiguous(x), float(eps)], x.shape)
