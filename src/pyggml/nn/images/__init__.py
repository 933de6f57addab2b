# SPDX-License-Identifier: MIT
"""Layers of image models."""

from .convolution import AvgPool2d, Conv1d, Conv2d, Flatten, GlobalAvgPool2d, MaxPool2d
from .norms import BatchNorm1d, BatchNorm2d, GroupNorm
from .sizes import AdaptiveAvgPool2d, Unflatten
from .upsampling import ConvTranspose2d, Upsample

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Flatten",
    "GlobalAvgPool2d",
    "GroupNorm",
    "MaxPool2d",
    "Unflatten",
    "Upsample",
]
