# SPDX-License-Identifier: MIT
"""ResNet: convolutions with shortcuts, under torchvision's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ... import checks, nn, ops
from ...io import GGUFFile
from ...nn import init
from ...nn.layers import check_sizes
from ...tensors import Tensor
from ..files import check_tensor
from .image import ClassifierConfig, ImageModel, check_widths

__all__ = ["ResNet", "ResNetConfig"]


@dataclass(frozen=True)
class ResNetConfig(ClassifierConfig):
    """Sizes of a ResNet of basic blocks.

    Args:
        channels: of the images: 1 grey, 3 colour.
        widths: channels of each stage; all but the first halve the image.
        blocks: blocks of each stage.
        stem: "small", one 3 × 3 convolution, for images of some 32 pixels; or "large", a 7 × 7 one
            and a pooling that quarter the image, for some 224.
        classes: number of classes.
        labels: their names; None leaves them numbers.
        mean: subtracted from each channel first; None subtracts nothing.
        std: each channel is divided by it after that.

    Raises:
        ValueError: a size is out of range, or widths and blocks are not as many.

    Source: He et al. 2015, arXiv:1512.03385: resnet-20 to -56 of its section 4.2, with
        1 × 1 convolutions in the shortcuts, resnet-18 and -34 of its table 1.

    Example:
        >>> ResNetConfig.preset("resnet-20").blocks
        (3, 3, 3)
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"widths": (8, 16), "blocks": (1, 1)},
        "resnet-8": {"widths": (16, 32, 64), "blocks": (1, 1, 1)},
        "resnet-20": {"widths": (16, 32, 64), "blocks": (3, 3, 3)},
        "resnet-32": {"widths": (16, 32, 64), "blocks": (5, 5, 5)},
        "resnet-56": {"widths": (16, 32, 64), "blocks": (9, 9, 9)},
        "resnet-18": {
            "widths": (64, 128, 256, 512), "blocks": (2, 2, 2, 2), "stem": "large", "classes": 1000,
        },
        "resnet-34": {
            "widths": (64, 128, 256, 512), "blocks": (3, 4, 6, 3), "stem": "large", "classes": 1000,
        },
    }  # fmt: skip

    channels: int = 3
    widths: tuple[int, ...] = (16, 32, 64)
    blocks: tuple[int, ...] = (3, 3, 3)
    stem: str = "small"

    def __post_init__(self) -> None:
        who = "ResNetConfig"
        self.check_kinds()
        check_sizes(who, channels=self.channels)
        object.__setattr__(self, "widths", check_widths(who, "widths", self.widths))
        object.__setattr__(self, "blocks", check_widths(who, "blocks", self.blocks))
        if len(self.widths) != len(self.blocks):
            raise ValueError(
                f"{who}: widths and blocks must be as many, one each per stage; "
                f"got {self.widths} and {self.blocks}"
            )
        checks.choice(who, "stem", self.stem, ("small", "large"))
        self.check(self.channels)


def _conv(channels: int, width: int, kernel: int, stride: int) -> nn.Conv2d:
    # He et al. draw by the fan of the output, which keeps the variance of gradients.
    std = (2.0 / (width * kernel * kernel)) ** 0.5
    drawn = init.normal(std)
    return nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False, init_weight=drawn)


class _Block(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x)))))), with a convolution of x where its shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(
                _conv(channels, width, 1, stride), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the images after the block."""
        y = self.bn2(self.conv2(ops.relu(self.bn1(self.conv1(x)))))
        return ops.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(ImageModel):
    """A residual network of basic blocks; resnet-18 and -34 take torchvision's weights.

    Args:
        config: sizes.

    Shape:
        x (B, C, H, W) -> (B, classes)

    Source: He et al. 2015, arXiv:1512.03385.

    Example:
        >>> ResNet(ResNetConfig.preset("tiny"))(ones((2, 3, 8, 8))).shape
        (2, 10)
    """

    arch = "resnet"
    config_class = ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__(config)
        large = config.stem == "large"
        first = config.widths[0]
        self.conv1 = _conv(config.channels, first, 7 if large else 3, 2 if large else 1)
        self.bn1 = nn.BatchNorm2d(first)
        self._pool = nn.MaxPool2d(3, 2, 1) if large else None
        channels = first
        self._stages: list[nn.Sequential] = []
        for i, (width, count) in enumerate(zip(config.widths, config.blocks, strict=True)):
            blocks = []
            for j in range(count):
                blocks.append(_Block(channels, width, 2 if i and not j else 1))
                channels = width
            stage = nn.Sequential(*blocks)
            setattr(self, f"layer{i + 1}", stage)
            self._stages.append(stage)
        self._gather = nn.GlobalAvgPool2d()
        self.fc = nn.Linear(channels, config.classes)

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        channels, size = config.channels, 7 if config.stem == "large" else 3
        check_tensor(file, "conv1.weight", (config.widths[0], channels, size, size))
        channels = config.widths[0]
        for i, (width, count) in enumerate(zip(config.widths, config.blocks, strict=True)):
            check_tensor(file, f"layer{i + 1}.0.conv1.weight", (width, channels, 3, 3))
            check_tensor(file, f"layer{i + 1}.{count - 1}.conv2.weight", (width, width, 3, 3))
            channels = width
        check_tensor(file, "fc.weight", (config.classes, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit per class."""
        x = self._normalised(self._check_images(x, self.config.channels))
        x = ops.relu(self.bn1(self.conv1(x)))
        x = x if self._pool is None else self._pool(x)
        for stage in self._stages:
            x = stage(x)
        y: Tensor = self.fc(self._gather(x))
        return y
