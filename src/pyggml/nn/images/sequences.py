# SPDX-License-Identifier: MIT
"""Layers of sequences, of channels and of distances, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from ... import checks
from ...ops.operands import need_ndim
from ...tensors import Tensor
from .. import functional
from ..init import constant
from ..layers import Dropout, check_eps, check_sizes
from ..module import Module, Parameter
from .upsampling import Upsample

__all__ = [
    "AdaptiveAvgPool1d",
    "AvgPool1d",
    "CosineSimilarity",
    "Dropout1d",
    "Dropout2d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "MaxPool1d",
    "PairwiseDistance",
    "PixelShuffle",
    "PixelUnshuffle",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


class MaxPool1d(Module):
    """The largest of each window of sequences.

    Args:
        kernel_size: the window.
        stride: None is the window.
        padding: at both ends; it is never the largest.
        ceil_mode: make windows at the end that are not whole.

    Shape:
        x (N, C, T) -> (N, C, OT)

    Example:
        >>> MaxPool1d(2)(ones((1, 3, 6))).shape
        (1, 3, 3)
    """

    RECORDS_LITTLE = True

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        *,
        ceil_mode: bool = False,
    ) -> None:
        who = type(self).__name__
        self.kernel_size = checks.whole(who, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else checks.whole(who, "stride", stride, 1)
        self.padding = checks.whole(who, "padding", padding, 0, self.kernel_size - 1)
        self.ceil_mode = checks.flag(who, "ceil_mode", ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled sequences."""
        window = self.kernel_size, self.stride, self.padding
        return functional.max_pool1d(x, *window, ceil_mode=self.ceil_mode)


class AvgPool1d(MaxPool1d):
    """The mean of each window of sequences.

    Args:
        kernel_size: the window.
        stride: None is the window.
        padding: at both ends.
        ceil_mode: make windows at the end that are not whole.
        count_include_pad: padding counts as zeros; False leaves it out of the means.

    Shape:
        x (N, C, T) -> (N, C, OT)
    """

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode=ceil_mode)
        self.count_include_pad = checks.flag(
            type(self).__name__, "count_include_pad", count_include_pad
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled sequences."""
        window = self.kernel_size, self.stride, self.padding
        return functional.avg_pool1d(x, *window, self.ceil_mode, self.count_include_pad)


class AdaptiveAvgPool1d(Module):
    """Means of windows of sequences, so many that the result has a length.

    Args:
        output_size: the length.

    Shape:
        x (N, C, T) -> (N, C, output_size)
    """

    def __init__(self, output_size: int) -> None:
        (self.output_size,) = check_sizes("AdaptiveAvgPool1d", output_size=output_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the means."""
        return functional.adaptive_avg_pool1d(x, self.output_size)


class Dropout1d(Dropout):
    """Zero whole channels of sequences at random while training; see `Dropout`.

    Args:
        p: probability that a channel is dropped.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Shape:
        x (N, C, T) -> as x
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return x; while training, with channels dropped."""
        return functional.dropout1d(x, self.p, self.training)


class Dropout2d(Dropout):
    """Zero whole channels of images at random while training; see `Dropout`.

    Args:
        p: probability that a channel is dropped.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Shape:
        x (N, C, H, W) -> as x
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return x; while training, with channels dropped."""
        return functional.dropout2d(x, self.p, self.training)


class InstanceNorm2d(Module):
    """Normalise each channel of each image; see `functional.instance_norm`.

    Args:
        num_features: C.
        eps: added to the variance, > 0.
        momentum: taken as PyTorch takes it; there are no running statistics.
        affine: learn a scale and a bias of each channel.

    Shape:
        x (N, C, H, W) -> as x

    Raises:
        ShapeError: x is of another shape.

    Example:
        >>> InstanceNorm2d(2)(ones((1, 2, 3, 3))).shape
        (1, 2, 3, 3)
    """

    _ndim = 4

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False
    ) -> None:
        who = type(self).__name__
        (self.num_features,) = check_sizes(who, num_features=num_features)
        self.eps = check_eps(who, eps)
        checks.number(who, "momentum", momentum)
        learns = checks.flag(who, "affine", affine)
        self.weight = Parameter(constant(1.0)((self.num_features,))) if learns else None
        self.bias = Parameter(constant(0.0)((self.num_features,))) if learns else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised x."""
        need_ndim(type(self).__name__, "x", x, self._ndim)
        return functional.instance_norm(x, None, None, self.weight, self.bias, eps=self.eps)


class InstanceNorm1d(InstanceNorm2d):
    """Normalise each channel of each sequence; see `functional.instance_norm`.

    Args:
        num_features: C.
        eps: added to the variance, > 0.
        momentum: taken as PyTorch takes it; there are no running statistics.
        affine: learn a scale and a bias of each channel.

    Shape:
        x (N, C, T) -> as x
    """

    _ndim = 3


class PixelShuffle(Module):
    """Images of r² times fewer channels, r times as high and wide.

    Args:
        upscale_factor: r.

    Shape:
        x (N, C · r², H, W) -> (N, C, H · r, W · r)
    """

    def __init__(self, upscale_factor: int) -> None:
        (self.upscale_factor,) = check_sizes("PixelShuffle", upscale_factor=upscale_factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the larger images."""
        return functional.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """Images of r² times as many channels, r times less high and wide.

    Args:
        downscale_factor: r.

    Shape:
        x (N, C, H · r, W · r) -> (N, C · r², H, W)
    """

    def __init__(self, downscale_factor: int) -> None:
        (self.downscale_factor,) = check_sizes("PixelUnshuffle", downscale_factor=downscale_factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the smaller images."""
        return functional.pixel_unshuffle(x, self.downscale_factor)


class UpsamplingNearest2d(Upsample):
    """Resize images by their nearest pixels; see `Upsample`.

    Args:
        size: rows and columns, or one number for both.
        scale_factor: of rows and columns; give it or the size.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize images by means of four pixels, corners to corners; see `Upsample`.

    Args:
        size: rows and columns, or one number for both.
        scale_factor: of rows and columns; give it or the size.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PairwiseDistance(Module):
    """`functional.pairwise_distance`.

    Args:
        p: of the norm.
        eps: added to the differences.
        keepdim: leave the axis with extent one.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        who = "PairwiseDistance"
        self.p, self.eps = checks.number(who, "p", p), checks.number(who, "eps", eps)
        self.keepdim = checks.flag(who, "keepdim", keepdim)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances."""
        return functional.pairwise_distance(a, b, self.p, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """`functional.cosine_similarity`.

    Args:
        dim: the axis of the vectors.
        eps: the least product of their norms.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim = checks.whole("CosineSimilarity", "dim", dim)
        self.eps = checks.number("CosineSimilarity", "eps", eps, 0)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the cosines."""
        return functional.cosine_similarity(a, b, self.dim, self.eps)
