# SPDX-License-Identifier: MIT
"""Normalising channels: over the batch, with running statistics, or in groups."""

from __future__ import annotations

import math
from typing import ClassVar

from ... import checks, ops
from ...errors import ShapeError
from ...graph import attach_update
from ...ops.operands import need_tensor
from ...tensors import Tensor, tensor, zeros
from .. import functional, init
from ..layers import check_eps, check_sizes
from ..module import Module, Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm"]


class BatchNorm2d(Module):
    """Normalise each channel: by the batch while training, by running statistics in `eval()`.

    y = (x - mean) / sqrt(var + eps) * weight + bias

    While training, mean and variance are the batch's, and each run of a graph that computes the
    layer moves the running ones towards them: new = (1 - momentum) old + momentum batch's, with
    the variance of a sample (divided by n - 1). In `eval` mode the running ones are used. They
    are buffers, saved with the parameters under PyTorch's names.

    Args:
        num_features: C.
        eps: added to the variance, > 0.
        momentum: of the running statistics, from 0 to 1; None makes them the mean of all batches.
        affine: learn scale and bias.
        track_running_stats: False keeps none, and normalises by the batch in `eval()` as well.

    Shape:
        x (B, C, H, W) -> as x

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a number is out of range.
        ShapeError: x is of another shape; or, training, a channel has a single element.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167; torch.nn.BatchNorm2d.

    Example:
        >>> layer = BatchNorm2d(3)
        >>> layer(ones((2, 3, 4, 4))).shape
        (2, 3, 4, 4)
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor | None
    _axes: ClassVar[tuple[str, ...]] = ("(B, C, H, W)",)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        who = type(self).__name__
        (self.num_features,) = (num_features,) = check_sizes(who, num_features=num_features)
        learns = checks.flag(who, "affine", affine)
        self.eps = check_eps(who, eps)
        self.momentum = (
            None if momentum is None else checks.number(who, "momentum", momentum, 0.0, 1.0)
        )
        self.weight = Parameter(init.constant(1.0)((num_features,))) if learns else None
        self.bias = Parameter(init.constant(0.0)((num_features,))) if learns else None
        if not checks.flag(who, "track_running_stats", track_running_stats):
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
            return
        self.register_buffer("running_mean", zeros((num_features,)))
        self.register_buffer("running_var", tensor(init.constant(1.0)((num_features,))))
        # f32 counts batches exactly up to 2^24, and PyTorch takes it for its whole number.
        self.register_buffer("num_batches_tracked", zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised, scaled and shifted `x`."""
        who, channels = type(self).__name__, self.num_features
        need_tensor(who, "x", x)
        fits = x.ndim in (1 + axes.count(",") for axes in self._axes)
        if not fits or x.shape[1] != channels:
            axes = " or ".join(self._axes)
            raise ShapeError(f"{who}: x must be {axes} with C={channels}; got {x.shape}")
        statistics = self.running_mean, self.running_var, self.weight, self.bias
        if self.num_batches_tracked is None:
            return functional.batch_norm(x, *statistics, True, eps=self.eps)
        if not self.training:
            return functional.batch_norm(x, *statistics, eps=self.eps)
        batches = self.num_batches_tracked + 1.0
        momentum = 1.0 / batches if self.momentum is None else self.momentum
        y = functional.batch_norm(x, *statistics, True, momentum, self.eps)
        return attach_update(y, ops.cpy(batches, self.num_batches_tracked))


class BatchNorm1d(BatchNorm2d):
    """`BatchNorm2d` of rows or sequences: each feature is normalised over the batch.

    Args:
        num_features: C.
        eps: added to the variance, > 0.
        momentum: of the running statistics, from 0 to 1; None makes them the mean of all batches.
        affine: learn scale and bias.
        track_running_stats: False keeps none, and normalises by the batch in `eval()` as well.

    Shape:
        x (B, C) or (B, C, L) -> as x

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a number is out of range.
        ShapeError: x is of another shape; or, training, a feature has a single element.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167; torch.nn.BatchNorm1d.

    Example:
        >>> BatchNorm1d(3).eval()(ones((2, 3))).shape
        (2, 3)
    """

    _axes = "(B, C)", "(B, C, L)"


class GroupNorm(Module):
    """Normalise the channels of each image or sequence in groups, then scale them and add a bias.

    Args:
        num_groups: number of groups; must divide the channels.
        num_channels: C.
        eps: added to the variance, > 0.
        affine: learn scale and bias.

    Shape:
        x (B, C), (B, C, L) or (B, C, H, W) -> as x

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a size is below 1, or the groups do not divide the channels.
        ShapeError: x is of another shape.

    Source: ggml_group_norm; Wu and He 2018, arXiv:1803.08494.

    Example:
        >>> GroupNorm(2, 4)(ones((2, 4, 3, 3))).shape
        (2, 4, 3, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        num_groups, num_channels = check_sizes(
            "GroupNorm", num_groups=num_groups, num_channels=num_channels
        )
        learns = checks.flag("GroupNorm", "affine", affine)
        if num_channels % num_groups:
            raise ValueError(
                "GroupNorm: num_groups must divide num_channels; "
                f"got {num_groups} and {num_channels}; try {math.gcd(num_groups, num_channels)}"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = check_eps("GroupNorm", eps)
        self.weight = Parameter(init.constant(1.0)((num_channels,))) if learns else None
        self.bias = Parameter(init.constant(0.0)((num_channels,))) if learns else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised, scaled and shifted `x`."""
        if need_tensor("GroupNorm", "x", x).ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(
                "GroupNorm: x must be (B, C), (B, C, L) or (B, C, H, W) with"
                f" C={self.num_channels}; got {x.shape}"
            )
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
