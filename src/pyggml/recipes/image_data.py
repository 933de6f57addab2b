# SPDX-License-Identifier: MIT
"""The images of a run: reading, splitting, augmentation, mean and deviation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..data import (
    ArrayImages,
    ColorJitter,
    HorizontalFlip,
    ImageDataset,
    ImageFolder,
    ImageSource,
    ImageTransform,
    RandomCrop,
    RandomResizedCrop,
    ResizedCenterCrop,
    cache_images,
    digits_images,
    idx_images,
    split_images,
)
from ..data.images.idx import has_idx
from ..errors import ConfigError, FormatError
from .image_config import ImageConfig

__all__ = ["ImageData", "read_images"]

_IDX = "mnist-idx:"
_SIZE_OF_FILES = 64
# Room for a random part: files are kept at this many times the size.
_MARGIN = 8 / 7
# Of smaller images a pixel is too large a part to be moved by it.
_LEAST_SHIFTED = 16
# Above this, files are read anew in every epoch.
_MOST_CACHED_BYTES = 1 << 30
_MOST_MEASURED = 2000


@dataclass
class ImageData:
    """The images of a run.

    Args:
        train: for training, augmented.
        validation: not augmented.
        classes: their names.
        size: height and width of the model's images.
        channels: 1 or 3.
        mean: of each channel of the training images.
        std: deviation of each channel.
        skipped: path and cause of each file that could not be read.
    """

    train: ImageDataset
    validation: ImageDataset
    classes: list[str]
    size: int
    channels: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    skipped: list[tuple[str, str]] = field(default_factory=list)


def read_images(config: ImageConfig, note: Callable[[str], None] = lambda text: None) -> ImageData:
    """Read the images that the option `data` names.

    Args:
        config: of the run.
        note: called with lines of progress.

    Raises:
        FormatError: there is nothing to read, a file of arrays is damaged, or there is only one
            class.
        ConfigError: an option does not suit the data.
        ImportError: Pillow or scikit-learn is not there.
    """
    source, validation = _sources(config)
    _check_classes(source, config.data.data)
    files = isinstance(source, ImageFolder)
    shape = (0, 0, config.data.channels or 3) if files else _shape_of(source)
    channels = config.data.channels or shape[2]
    if not files and channels != shape[2]:
        raise ConfigError(
            f"`channels` must be {shape[2]}, as the images of {config.data.data} have; got "
            f"{channels}"
        )
    size = config.data.size or (_SIZE_OF_FILES if files else max(shape[:2]))
    if validation is None:
        train, rest = split_images(source, config.data.value("val_fraction"), config.trainer.seed)
        kept, measured = train, rest
    else:
        kept, measured = source, validation  # type: ignore[assignment]
    if files:
        note(f"reading {len(source):,} images")
    usual = "photo" if files else "shift" if size >= _LEAST_SHIFTED else "none"
    kind = config.data.augment or usual
    larger = math.ceil(size * _MARGIN) if kind == "photo" else size
    learned = _fitting(kept, larger, channels)
    known = _fitting(measured, size, channels)
    if isinstance(source, ImageFolder):
        _check_readable(learned, source)
    skipped = [(str(path), cause) for path, cause in getattr(source, "skipped", [])]
    data = ImageData(
        _dataset(learned, _augmentation(kind, learned, size), config),
        ImageDataset(known, [] if _has_size(known, size) else _exact(size)),
        list(source.classes),
        size,
        channels,
        skipped=skipped,
    )
    data.mean, data.std = _measure(learned)
    return data


def _sources(config: ImageConfig) -> tuple[ImageSource, ImageSource | None]:
    """Return the images to split, or those for training and those for validation."""
    if config.data.data == "digits":
        return digits_images(), None
    named = config.data.data.startswith(_IDX)
    folder = Path(config.data.data.removeprefix(_IDX))
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(
            f"`data` must be digits or a folder; {folder} {what}: give a folder that has one "
            "folder of images for each class, or MNIST's files"
        )
    if not named and not has_idx(folder):
        # Each file is read below, all of it; the headers are enough here.
        return ImageFolder(folder, config.data.channels or 3), None
    train = idx_images(folder, "train")
    if not any(folder.glob("t10k-*")):
        return train, None
    if config.data.val_fraction is not None:
        raise ConfigError(
            f"`val_fraction` needs data without images for validation; got {folder} with MNIST's "
            "test files: leave `val_fraction` out, or move them away"
        )
    return train, idx_images(folder, "test", len(train.classes))


def _exact(size: int) -> list[ImageTransform]:
    """Return the transforms that bring any image to a size without chance."""
    return [ResizedCenterCrop(size)]


def _check_classes(source: ImageSource, data: str) -> None:
    """Raise on a single class, which every image would have."""
    present = np.unique(source.labels)
    if present.size < 2:
        names = ", ".join(source.classes[int(label)] for label in present)
        raise FormatError(
            f"train-image: {data}: images must be of two classes or more; got one ({names}): add a"
            " folder with images of something else"
        )


def _check_readable(learned: ImageSource, source: ImageFolder) -> None:
    """Raise on a class of which no image could be read."""
    missing = np.setdiff1d(source.labels, learned.labels)
    if missing.size:
        name = source.classes[int(missing[0])]
        causes = [f"{path.name}: {cause}" for path, cause in source.skipped if name in path.parts]
        raise FormatError(
            f"train-image: {source.path / name}: a class must have an image that can be read; got"
            f" none{'; ' if causes else ''}{'; '.join(causes[:3])}"
        )


def _shape_of(source: ImageSource) -> tuple[int, int, int]:
    image = source.image(0)
    assert image is not None  # arrays are always there
    rows, columns, channels = image.shape
    return rows, columns, channels


def _has_size(source: ImageSource, size: int) -> bool:
    return isinstance(source, ArrayImages) and source.images.shape[1:3] == (size, size)


def _fitting(source: ImageSource, size: int, channels: int) -> ImageSource:
    """Return images of one size in memory, or the source where they would take too much of it."""
    if len(source) * size * size * channels > _MOST_CACHED_BYTES:
        return source
    return cache_images(source, size)


def _augmentation(kind: str, source: ImageSource, size: int) -> list[ImageTransform]:
    """Return the transforms of training images."""
    if kind == "photo":
        return [
            RandomResizedCrop(size, scale=(0.5, 1.0)),
            HorizontalFlip(),
            ColorJitter(0.2, 0.2, 0.2),
        ]
    exact = [] if _has_size(source, size) else _exact(size)
    return [*exact, RandomCrop(size, padding=max(1, size // 8))] if kind == "shift" else exact


def _dataset(
    source: ImageSource, transforms: list[ImageTransform], config: ImageConfig
) -> ImageDataset:
    if config.data.balance and np.unique(source.labels).size < len(source.classes):
        counts = np.bincount(source.labels, minlength=len(source.classes))
        empty = source.classes[int(np.argmin(counts))]
        raise FormatError(f"train-image: `balance` needs an image of each class; {empty} has none")
    weights = "balanced" if config.data.balance else None
    return ImageDataset(source, transforms, mixup=config.data.mixup, weights=weights)


def _measure(source: ImageSource) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel, of at most 2,000 images."""
    items = np.linspace(0, len(source) - 1, min(len(source), _MOST_MEASURED)).astype(int)
    images = [image for item in items if (image := source.image(int(item))) is not None]
    pixels = np.concatenate([image.reshape(-1, image.shape[2]) for image in images])
    std = pixels.std(axis=0, dtype=np.float64)
    # A channel that is the same everywhere tells nothing; dividing by 1 leaves it so.
    std[std < 1e-4] = 1.0
    mean = pixels.mean(axis=0, dtype=np.float64)
    return tuple(float(f"{m:.6g}") for m in mean), tuple(float(f"{s:.6g}") for s in std)
