# SPDX-License-Identifier: MIT
"""Image and table classifiers."""

from .cnn import CNN, CNNConfig
from .image import ClassifierConfig, ImageModel
from .mlp import MLP, MLPConfig
from .resnet import ResNet, ResNetConfig

__all__ = [
    "CNN",
    "CNNConfig",
    "ClassifierConfig",
    "ImageModel",
    "MLP",
    "MLPConfig",
    "ResNet",
    "ResNetConfig",
]
