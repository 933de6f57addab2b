# SPDX-License-Identifier: MIT
"""The configuration of a training on images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from ..errors import shown
from ..options import Options, option
from ..train.options import TrainerOptions
from .configuration import Configuration
from .options import MachineOptions, OptimizerOptions, OutputOptions, check_agreement

__all__ = ["AUGMENTATIONS", "ImageConfig", "ImageDataOptions", "ImageModelOptions"]

MODELS = ("mlp", "cnn", "resnet")
AUGMENTATIONS = ("none", "shift", "photo")


def _read_channels(value: int) -> int:
    if value not in (1, 3):
        raise ValueError(f"must be 1 or 3; got {shown(value)}")
    return value


@dataclass(frozen=True, kw_only=True)
class ImageModelOptions(Options):
    """The model of a training on images.

    Example:
        >>> ImageModelOptions(model="resnet").model
        'resnet'
    """

    model: str = option("cnn", "Model: mlp, cnn or resnet.", choices=MODELS, on_resume="same")


@dataclass(frozen=True, kw_only=True)
class ImageDataOptions(Options):
    """The images of a training, their sizes and augmentation.

    Example:
        >>> ImageDataOptions(data="pets/", size=32).size
        32
    """

    data: str = option(
        MISSING,
        "digits, a folder that has one folder of images for each class, or a folder with MNIST's "
        "files, also as mnist-idx:FOLDER.",
        is_path=True,
        metavar="DATA",
        on_resume="same",
    )
    size: int | None = option(
        None,
        "Height and width to which images are resized.",
        least=4,
        most=1024,
        unit="pixels",
        chosen="as arrays are; 64 for files",
        on_resume="same",
    )
    channels: int | None = option(
        None,
        "1 for grey images, 3 for colour.",
        chosen="1 for arrays, 3 for files",
        read=_read_channels,
        on_resume="same",
    )
    augment: str | None = option(
        None,
        "Random changes of images in every epoch: none, shift by up to an eighth, or photo: "
        "crops, mirror images and colours.",
        choices=AUGMENTATIONS,
        chosen="photo for files, shift for arrays",
        on_resume="same",
    )
    mixup: float = option(
        0.0,
        "Strength of mixup, the mixing of pairs of images, such as 0.2; 0 switches it off.",
        least=0,
        most=100,
        on_resume="same",
    )
    balance: bool = option(
        False, "Draw each class as often, however many images it has.", on_resume="same"
    )
    val_fraction: float | None = option(
        None,
        "Share of each class for validation, where MNIST's test files do not serve for it.",
        above=0,
        below=1,
        otherwise=0.2,
        on_resume="same",
    )


class ImageConfig(Configuration):
    """The options of a training on images: `ImageConfig(data="pets/", epochs=30)`.

    Raises:
        ConfigError: an option is unknown or cannot be used, or two do not agree.

    Example:
        >>> ImageConfig(data="pets/", model="resnet", size=32).data.augment is None
        True
    """

    data: ImageDataOptions
    model: ImageModelOptions
    optimizer: OptimizerOptions
    trainer: TrainerOptions
    output: OutputOptions
    machine: MachineOptions

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "artifact_dir": "artifacts/image",
        "epochs": 15,
        "batch_size": 32,
        "lr": 3e-3,
        "weight_decay": 0.05,
        "metrics": ("accuracy",),
        "keep": 1,
    }
    CHOSEN: ClassVar[Mapping[str, Any]] = {
        "epochs": "15, unless `steps` is given",
        "steps": "those of `epochs`",
        "eval_every": "an epoch",
        "save_every": "an epoch",
    }
    # A model of images has no count of operations per token, and no blocks to compute again.
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"mfu", "checkpointing"})

    def check(self) -> None:
        """Raise `ConfigError` if the parts do not agree."""
        check_agreement(self.optimizer, self.trainer)
