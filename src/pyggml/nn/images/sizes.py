# SPDX-License-Identifier: MIT
"""Layers whose result has a size that is given: pooling, and axes from one."""

from __future__ import annotations

from collections.abc import Sequence

from ... import checks
from ...ops.operands import need_tensor, need_wholes
from ...tensors import Tensor
from .. import functional
from ..functional.operations import output_pair
from ..module import Module

__all__ = ["AdaptiveAvgPool2d", "Unflatten"]


class AdaptiveAvgPool2d(Module):
    """Means of windows, so many that the result has a size.

    Args:
        output_size: rows and columns, or one number for both; None keeps those of the images.

    Shape:
        x (B, C, H, W) -> (B, C, *output_size)

    Raises:
        TypeError: a size is no whole number.
        ValueError: a size is below 1.

    Example:
        >>> AdaptiveAvgPool2d((1, 1))(ones((2, 3, 4, 4))).shape
        (2, 3, 1, 1)
    """

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        self.output_size = output_pair("AdaptiveAvgPool2d", output_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled images."""
        return functional.adaptive_avg_pool2d(x, self.output_size)


class Unflatten(Module):
    """Make several axes of one; see `ops.unflatten`.

    Args:
        dim: the axis.
        unflattened_size: the extents; one may be -1.

    Example:
        >>> Unflatten(1, (3, 2, 2))(ones((4, 12))).shape
        (4, 3, 2, 2)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim = checks.whole("Unflatten", "dim", dim)
        self.unflattened_size = tuple(
            need_wholes("Unflatten", "unflattened_size", unflattened_size)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x with the axes."""
        return need_tensor("Unflatten", "x", x).unflatten(self.dim, self.unflattened_size)
