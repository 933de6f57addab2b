# SPDX-License-Identifier: MIT
"""CNN: convolutions with pooling, for small images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from ... import checks, nn
from ...errors import ShapeError
from ...io import GGUFFile
from ...nn import init
from ...nn.layers import check_sizes
from ...tensors import Tensor
from ..files import check_tensor
from .image import ClassifierConfig, ImageModel, check_widths, make_activation

__all__ = ["CNN", "CNNConfig"]

_GROUPS = 8  # of the group norm: the most, where they divide the width


@dataclass(frozen=True)
class CNNConfig(ClassifierConfig):
    """Sizes of a CNN.

    Args:
        channels: of the images: 1 grey, 3 colour.
        size: height and width of the images, one number or two.
        widths: channels of each stage; a stage is a convolution, a norm, an activation and a
            pooling that halves the image.
        kernel: height and width of the kernels; odd.
        norm: "batch", "group" or "none".
        activation: "relu", "gelu", "silu" or "tanh".
        hidden: width of the layer before the last; 0 has none.
        dropout: share dropped before each of the last layers while training.
        classes: number of classes.
        labels: their names; None leaves them numbers.
        mean: subtracted from each channel first; None subtracts nothing.
        std: each channel is divided by it after that.

    Raises:
        ValueError: a size is out of range, or there are more stages than the image can be halved.

    Example:
        >>> CNNConfig(channels=1, size=28, classes=10).size
        (28, 28)
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"channels": 1, "size": 8, "widths": (8, 16), "hidden": 0},
        "digits": {"channels": 1, "size": 8, "widths": (32, 64), "hidden": 64, "dropout": 0.2},
        "mnist": {"channels": 1, "size": 28, "widths": (32, 64), "hidden": 128, "dropout": 0.25},
        "cifar10": {
            "channels": 3, "size": 32, "widths": (32, 64, 128), "hidden": 256, "dropout": 0.3,
        },
    }  # fmt: skip

    channels: int = 1
    size: tuple[int, int] | int = 28
    widths: tuple[int, ...] = (32, 64)
    kernel: int = 3
    norm: str = "batch"
    activation: str = "relu"
    hidden: int = 128
    dropout: float = 0.0

    def __post_init__(self) -> None:
        who = "CNNConfig"
        self.check_kinds()
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        object.__setattr__(self, "size", check_widths(who, "size", size, 2))
        if len(self.shape) != 2:
            raise ValueError(f"{who}: size must be one number or two; got {self.size!r}")
        object.__setattr__(self, "widths", check_widths(who, "widths", self.widths))
        check_sizes(who, channels=self.channels, kernel=self.kernel)
        if self.kernel % 2 == 0:
            raise ValueError(f"{who}: kernel must be odd, to have a middle; got {self.kernel}")
        checks.whole(who, "hidden", self.hidden, 0)
        checks.choice(who, "norm", self.norm, ("batch", "group", "none"))
        make_activation(who, self.activation)
        nn.Dropout(self.dropout)
        self.check(self.channels)
        most = int(math.log2(min(self.shape)))
        if len(self.widths) > most:
            raise ValueError(
                f"{who}: {len(self.widths)} stages halve the image as often, which a size of "
                f"{self.shape} allows {most} times; use fewer widths or larger images"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Height and width of the images."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def features(self) -> int:
        """Number of features of an image after the convolutions."""
        halvings = len(self.widths)
        return self.widths[-1] * (self.shape[0] >> halvings) * (self.shape[1] >> halvings)


class _Stage(nn.Module):
    """Convolve, normalise, activate, pool."""

    def __init__(self, config: CNNConfig, channels: int, width: int) -> None:
        self.conv = nn.Conv2d(
            channels,
            width,
            config.kernel,
            padding=config.kernel // 2,
            bias=config.norm == "none",
            init_weight=init.kaiming_normal(),
        )
        if config.norm == "batch":
            self.norm: nn.Module | None = nn.BatchNorm2d(width)
        elif config.norm == "group":
            self.norm = nn.GroupNorm(math.gcd(_GROUPS, width), width)
        else:
            self.norm = None
        self.activation = make_activation("CNN", config.activation)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return images of half the height and width."""
        x = self.conv(x)
        x = x if self.norm is None else self.norm(x)
        y: Tensor = self.pool(self.activation(x))
        return y


class CNN(ImageModel):
    """A convolutional network: stages that halve the image, then one or two linear layers.

    Args:
        config: sizes.

    Shape:
        x (B, C, H, W) -> (B, classes)

    Source: LeCun et al. 1998; batch norm: Ioffe and Szegedy 2015, arXiv:1502.03167.

    Example:
        >>> CNN(CNNConfig(size=8, classes=10))(ones((2, 1, 8, 8))).shape
        (2, 10)
    """

    arch = "cnn"
    config_class = CNNConfig

    def __init__(self, config: CNNConfig) -> None:
        super().__init__(config)
        channels = (config.channels, *config.widths)
        self.stages = [_Stage(config, a, b) for a, b in pairwise(channels)]
        self.drop = nn.Dropout(config.dropout)
        width = config.features
        self.hidden = None
        if config.hidden:
            self.hidden = nn.Linear(width, config.hidden, init_weight=init.kaiming_uniform())
            width = config.hidden
        self.activation = make_activation("CNN", config.activation)
        self.head = nn.Linear(width, config.classes)

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        channels, size = (config.channels, *config.widths), config.kernel
        for i, (width, wide) in enumerate(pairwise(channels)):
            check_tensor(file, f"stages.{i}.conv.weight", (wide, width, size, size))
        width = config.features
        if config.hidden:
            check_tensor(file, "hidden.weight", (config.hidden, width))
            width = config.hidden
        check_tensor(file, "head.weight", (config.classes, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit per class."""
        self._check_images(x, self.config.channels)
        if x.shape[2:] != self.config.shape:
            raise ShapeError(
                f"CNN: images must have the configured size {self.config.shape}; got {x.shape[2:]}:"
                " resize them, or configure another size"
            )
        x = self._normalised(x)
        for stage in self.stages:
            x = stage(x)
        x = x.reshape(x.shape[0], self.config.features)
        if self.hidden is not None:
            x = self.activation(self.hidden(self.drop(x)))
        y: Tensor = self.head(self.drop(x))
        return y
