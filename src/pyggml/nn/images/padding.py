# SPDX-License-Identifier: MIT
"""Layers that pad sequences and images, under PyTorch's names."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import checks
from ...ops.convolution import LARGEST
from ...ops.operands import need_ndim
from ...tensors import Tensor
from .. import functional
from ..module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ZeroPad1d",
    "ZeroPad2d",
]


class _Pad(Module):
    """Add elements at the ends of the last axes.

    Args:
        padding: one number for all ends, or one for each: of the last axis first.
    """

    RECORDS_LITTLE = True

    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value = 0.0

    def __init__(self, padding: Any) -> None:
        who, count = type(self).__name__, 2 * self.axes
        if not isinstance(padding, (list, tuple)):
            padding = [checks.whole(who, "padding", padding, 0, LARGEST)] * count
        if len(padding) != count:
            raise ValueError(
                f"{who}: padding must be one number or {count}, of the last axis first; got"
                f" {padding!r:.60}"
            )
        self.padding = tuple(checks.whole(who, "padding", n, 0, LARGEST) for n in padding)

    def forward(self, x: Tensor) -> Tensor:
        """Return the padded x."""
        need_ndim(type(self).__name__, "x", x, self.axes + 2)
        return functional.pad(x, self.padding, self.mode, self.value)


class ConstantPad1d(_Pad):
    """Add a number at both ends of sequences.

    Args:
        padding: one number for both ends, or two.
        value: what is added.

    Shape:
        x (N, C, T) -> (N, C, T + both)

    Example:
        >>> ConstantPad1d(1, 2.0)(zeros((1, 1, 1))).tolist()
        [[[2.0, 0.0, 2.0]]]
    """

    axes = 1

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = checks.number(type(self).__name__, "value", value)


class ConstantPad2d(ConstantPad1d):
    """Add a number around images.

    Args:
        padding: one number for all sides, or left, right, top and bottom.
        value: what is added.

    Shape:
        x (N, C, H, W) -> (N, C, H + top and bottom, W + left and right)
    """

    axes = 2


class ZeroPad1d(_Pad):
    """Add zeros at both ends of sequences; see `ConstantPad1d`."""

    axes = 1


class ZeroPad2d(_Pad):
    """Add zeros around images; see `ConstantPad2d`."""

    axes = 2


class ReflectionPad1d(_Pad):
    """Add the elements of sequences beside their ends, mirrored; see `functional.pad`."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Add the rows and columns of images beside their edges, mirrored; see `functional.pad`."""

    axes, mode = 2, "reflect"


class ReplicationPad1d(_Pad):
    """Repeat the ends of sequences; see `functional.pad`."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Repeat the edges of images; see `functional.pad`."""

    axes, mode = 2, "replicate"


class CircularPad1d(_Pad):
    """Add the elements of the other end of sequences; see `functional.pad`."""

    axes, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Add the rows and columns of the other side of images; see `functional.pad`."""

    axes, mode = 2, "circular"
