# SPDX-License-Identifier: MIT
"""Normalisation over the last axis."""

from __future__ import annotations

from ..backend.library import lib
from ..checks import number, whole
from ..errors import ShapeError
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.tensor import Tensor
from .operands import contiguous, need_float, need_ndim

__all__ = ["group_norm", "l2_norm", "norm", "rms_norm"]


def _check(who: str, x: Tensor, eps: float) -> None:
    need_float(who, "x", x)
    if x.ndim == 0:
        raise ShapeError(f"{who}: x must have an axis; got a scalar")
    number(who, "eps", eps, 0.0)


@on_demand
def norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) of each row.

    Args:
        x: f32 tensor.
        eps: added to the variance.

    Shape:
        x (..., C) -> (..., C)

    Raises:
        ValueError: eps is negative or not finite.

    Source: ggml_norm; Ba et al. 2016, arXiv:1607.06450.
    """
    _check("norm", x, eps)
    return record(lib.ggml_norm, [contiguous(x), float(eps)], x.shape)


@on_demand
def rms_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x²) + eps) of each row.

    Args:
        x: f32 tensor.
        eps: added to the mean square.

    Shape:
        x (..., C) -> (..., C)

    Raises:
        ValueError: eps is negative or not finite.

    Source: ggml_rms_norm; Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    _check("rms_norm", x, eps)
    return record(lib.ggml_rms_norm, [contiguous(x), float(eps)], x.shape)


@on_demand
def l2_norm(x: Tensor, eps: float = 1e-12) -> Tensor:
    """x / max(‖x‖, eps) of each row.

    The squares are f32: a row with a number beyond 1.8e19, whose square is infinite, becomes 0.
    Scale such rows first.

    Args:
        x: f32 tensor.
        eps: least length to divide by.

    Shape:
        x (..., C) -> (..., C)

    Raises:
        ValueError: eps is negative or not finite.

    Source: ggml_l2_norm; torch.nn.functional.normalize.
    """
    _check("l2_norm", x, eps)
    return record(lib.ggml_l2_norm, [contiguous(x), float(eps)], x.shape)


@on_demand
def group_norm(x: Tensor, n_groups: int, eps: float = 1e-5) -> Tensor:
    """Normalise the channels of an image in groups, each over its channels and pixels.

    Args:
        x: f32 images.
        n_groups: number of groups; must divide C.
        eps: added to the variance.

    Shape:
        x (N, C, H, W) or (C, H, W) -> as x

    Raises:
        ShapeError: x is not of that shape, or n_groups does not divide C.
        ValueError: eps is negative or not finite.

    Source: ggml_group_norm; Wu and He 2018, arXiv:1803.08494.
    """
    _check("group_norm", x, eps)
    need_ndim("group_norm", "x", x, 3, 4)
    n_groups = whole("group_norm", "n_groups", n_groups, 1, 2**31 - 1)
    if x.shape[-3] % n_groups:
        raise ShapeError(
            f"group_norm: n_groups must divide C; got C={x.shape[-3]}, n_groups={n_groups}"
        )
    return record(lib.ggml_group_norm, [contiguous(x), n_groups, float(eps)], x.shape)
