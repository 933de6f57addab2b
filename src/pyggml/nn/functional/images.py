# SPDX-License-Identifier: MIT
"""Images in other sizes, with the arguments of PyTorch's function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...checks import number
from ...errors import ShapeError
from ...ops.composed.naming import composed
from ...ops.operands import need_ndim
from ...tensors import Tensor

__all__ = ["interpolate"]


@composed
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *,
    antialias: bool = False,
) -> Tensor:
    """Resize images to a size or by a factor.

    Args:
        x: f32 images.
        size: rows and columns, or one number for both; None takes scale_factor.
        scale_factor: of rows and columns, which must become whole; None takes size.
        mode: "nearest", "bilinear" or "bicubic".
        align_corners: the corners' centres stay where they are; not for "nearest". None is False.
        antialias: smooth what shrinks; "bilinear" only.

    Shape:
        x (B, C, H, W) -> (B, C, OH, OW)

    Raises:
        ValueError: both or none of size and scale_factor are given, or the mode is unknown or does
            not go with an option.
        ShapeError: x is not (B, C, H, W), or the factor makes no whole rows and columns of it.

    Source: torch.nn.functional.interpolate; ggml_interpolate.

    Example:
        >>> interpolate(ones((1, 3, 4, 6)), scale_factor=2).shape
        (1, 3, 8, 12)
    """
    need_ndim("interpolate", "x", x, 4)
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "interpolate: size or scale_factor must be given, and not both; got"
            f" size={size}, scale_factor={scale_factor}"
        )
    if scale_factor is not None:
        size = _scaled(x, scale_factor)
    both: Any = size if isinstance(size, (list, tuple)) else (size, size)
    return ops.interpolate(x, both, mode, align_corners or False, antialias)


def _scaled(x: Tensor, scale_factor: Any) -> tuple[int, ...]:
    """Return rows and columns times their factors."""
    given = scale_factor if isinstance(scale_factor, (list, tuple)) else (scale_factor,) * 2
    if len(given) != 2:
        raise ShapeError(f"interpolate: scale_factor must be one or two numbers; got {given}")
    factors = [number("interpolate", "scale_factor", f, above=0.0) for f in given]
    wanted = [n * f for n, f in zip(x.shape[2:], factors, strict=True)]
    if any(n < 1 or n != math.floor(n) for n in wanted):
        raise ShapeError(
            f"interpolate: scale_factor must make whole rows and columns; got {scale_factor} for"
            f" {x.shape[2:]}: give size"
        )
    return tuple(map(int, wanted))
