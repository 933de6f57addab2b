# SPDX-License-Identifier: MIT
"""Everything a training on images can be told, with its checks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ..train.checks import EXPORTS, unknown_fields
from ..train.config import ConfigError, TrainConfig

__all__ = ["AUGMENTATIONS", "ImageConfig"]

MODELS = ("mlp", "cnn", "resnet")
AUGMENTATIONS = ("none", "shift", "photo")


@dataclass(frozen=True)
class ImageConfig:
    """What images to learn, with what model, for how long.

    `None` means "chosen for you", by the data.

    Args:
        data: `digits` (scikit-learn's), a folder with one folder of images for each class, or a
            folder with MNIST's IDX files, also as `mnist-idx:FOLDER`.
        artifact_dir: folder for everything the run leaves.
        model: `mlp`, `cnn` or `resnet`.
        size: height and width that images are brought to; None is that of the arrays, and 64 for
            files.
        channels: 1 for grey, 3 for colour; None is 1 for arrays and 3 for files.
        epochs: passes over the images.
        batch_size: images computed together.
        lr: highest learning rate.
        weight_decay: decay of the weight matrices.
        optimizer: by its name in `pyggml.optim.optimizers()`.
        augment: how images are changed anew in every epoch: `none`, `shift` by up to an eighth,
            or `photo`: parts, mirror images and colours; None is `photo` for files, and `shift` for
            arrays that are not tiny.
        mixup: above 0, each image is mixed with another; see `pyggml.data.ImageDataset`.
        balance: draw each class as often, however many images it has.
        val_fraction: share of each class that is held back; MNIST's test files go before it.
        precision: what products multiply, `f32`, `bf16` or `f16`.
        export: whose weights `model.gguf` gets at the end: those of the epoch with the lowest loss
            of the images held back, `best`, or of the `last`.
        seed: seeds weights, the parts, order and augmentation.
        threads: CPU threads; None is all cores.
        device: `auto`, `cpu`, `cuda:0`, `metal`.

    Raises:
        ConfigError: a value that cannot be used; names the option and the cure.

    Example:
        >>> ImageConfig("pets/", model="resnet", size=32).augment is None
        True
    """

    data: str
    artifact_dir: str = "artifacts/image"
    model: str = "cnn"
    size: int | None = None
    channels: int | None = None
    epochs: int = 15
    batch_size: int = 32
    lr: float = 3e-3
    weight_decay: float = 0.05
    optimizer: str = "adamw"
    augment: str | None = None
    mixup: float = 0.0
    balance: bool = False
    val_fraction: float = 0.2
    precision: str = "f32"
    export: str = "last"
    seed: int = 0
    threads: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.data, str) or not self.data:
            raise ConfigError(
                f"--data must be digits or a folder; got {self.data!r}: give a folder that has one "
                "folder of images for each class"
            )
        known_as = {"model": MODELS, "augment": (None, *AUGMENTATIONS), "export": EXPORTS}
        for name, choices in known_as.items():
            if getattr(self, name) not in choices:
                known = ", ".join(str(choice) for choice in choices if choice)
                raise ConfigError(f"--{name} must be one of {known}; got {getattr(self, name)!r}")
        if self.channels not in (None, 1, 3):
            raise ConfigError(f"--channels must be 1 or 3; got {self.channels!r}")
        if self.size is not None:
            _whole("size", self.size, 4, 1024)
        _whole("epochs", self.epochs, 1, 10**6)
        _number("mixup", self.mixup, 0.0, 100.0)
        if not (0 < _number("val-fraction", self.val_fraction, 0.0, 1.0) < 1):
            raise ConfigError(
                f"--val-fraction must be above 0 and below 1; got {self.val_fraction}: without "
                "images held back nobody knows what was learned"
            )
        self.train_config(1)

    def train_config(self, steps_per_epoch: int) -> TrainConfig:
        """What the trainer is told; checks the options that it shares.

        Args:
            steps_per_epoch: an evaluation follows after so many.
        """
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            optimizer=self.optimizer,
            precision=self.precision,
            seed=self.seed,
            threads=self.threads,
            device=self.device,
            eval_every=steps_per_epoch,
            save_every=steps_per_epoch,
            keep=1,
            export=self.export,
            scores=("accuracy",),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ImageConfig:
        """The configuration that `to_dict` wrote.

        Raises:
            ConfigError: an unknown field, or a value that cannot be used.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if not set(values) <= known:
            raise ConfigError(f"ImageConfig.from_dict: {unknown_fields(values, known)}")
        if "data" not in values:
            raise ConfigError("ImageConfig.from_dict: fields must have data among them")
        return cls(**values)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"--{name} must be a whole number from {low} to {high}; got {value!r}")


def _number(name: str, value: Any, low: float, high: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"--{name} must be a number from {low:g} to {high:g}; got {value!r}")
    return float(value)
