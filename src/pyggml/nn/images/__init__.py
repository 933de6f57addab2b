# SPDX-License-Identifier: MIT
"""Layers of image models."""

from .convolution import AvgPool2d, Conv1d, Conv2d, Flatten, GlobalAvgPool2d, MaxPool2d
from .norms import BatchNorm1d, BatchNorm2d, GroupNorm
from .padding import (
    CircularPad1d,
    CircularPad2d,
    ConstantPad1d,
    ConstantPad2d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReplicationPad1d,
    ReplicationPad2d,
    ZeroPad1d,
    ZeroPad2d,
)
from .sequences import (
    AdaptiveAvgPool1d,
    AvgPool1d,
    CosineSimilarity,
    Dropout1d,
    Dropout2d,
    InstanceNorm1d,
    InstanceNorm2d,
    MaxPool1d,
    PairwiseDistance,
    PixelShuffle,
    PixelUnshuffle,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
)
from .sizes import AdaptiveAvgPool2d, Unflatten
from .upsampling import ConvTranspose1d, ConvTranspose2d, Upsample

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CosineSimilarity",
    "Dropout1d",
    "Dropout2d",
    "Flatten",
    "GlobalAvgPool2d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "MaxPool1d",
    "MaxPool2d",
    "PairwiseDistance",
    "PixelShuffle",
    "PixelUnshuffle",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "Unflatten",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "ZeroPad1d",
    "ZeroPad2d",
]
