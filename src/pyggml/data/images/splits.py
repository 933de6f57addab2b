# SPDX-License-Identifier: MIT
"""Parts of a source of images, and sources read into memory once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from .crops import ResizedCenterCrop
from .images import ArrayImages, ImageSource

__all__ = ["ImageSubset", "cache_images", "split_images"]


def _need_source(who: str, source: Any) -> None:
    """Raise for what has no images and labels."""
    kind = "a source of images, such as an ImageFolder"
    checks.having(who, "source", source, kind, "labels", "classes", "image", "__len__")


class ImageSubset:
    """Some images of a source.

    Args:
        source: has more.
        items: their numbers.

    Attributes:
        labels: class of each, (N,).
        classes: names of all classes of the source.

    Raises:
        ValueError: there is no item, or a number is not that of an image.

    Example:
        >>> source = ArrayImages(np.zeros((5, 8, 8), np.uint8), [0, 1, 2, 1, 0])
        >>> ImageSubset(source, [1, 3]).labels.tolist()
        [1, 1]
    """

    def __init__(self, source: ImageSource, items: ArrayLike) -> None:
        _need_source("ImageSubset", source)
        chosen = np.asarray(items)
        good = chosen.ndim == 1 and chosen.size and chosen.dtype.kind in "iu"
        if not good or chosen.min() < 0 or chosen.max() >= len(source):
            raise ValueError(
                f"ImageSubset: items must be numbers from 0 to {len(source) - 1}, at least one; got"
                f" {np.array2string(chosen, threshold=8)}"
            )
        self.source = source
        self.items = chosen.astype(np.int64)
        self.labels = source.labels[self.items]
        self.classes = source.classes

    def __len__(self) -> int:
        """Number of images."""
        return len(self.items)

    def image(self, item: int) -> np.ndarray | None:
        """An image (H, W, C) f32 from 0 to 1; None if it cannot be read."""
        item = checks.whole("ImageSubset.image", "item", item, 0, len(self) - 1)
        return self.source.image(int(self.items[item]))


def split_images(
    source: ImageSource, fraction: float, seed: int = 0
) -> tuple[ImageSubset, ImageSubset]:
    """Split images into training and validation, with the same share of each class.

    A class of two or more images has at least one in either part; one of a single image is only
    trained on.

    Args:
        source: all images.
        fraction: share of the validation images, > 0 and < 1.
        seed: of the choice.

    Returns:
        The training images, and the validation images.

    Raises:
        ValueError: the fraction is out of range, or no class has two images.

    Example:
        >>> source = ArrayImages(np.zeros((10, 8, 8), np.uint8), [0] * 8 + [1] * 2)
        >>> train, validation = split_images(source, 0.25)
        >>> np.bincount(train.labels).tolist(), np.bincount(validation.labels).tolist()
        ([6, 1], [2, 1])
    """
    _need_source("split_images", source)
    number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
    if not number or not 0 < fraction < 1:
        raise ValueError(f"split_images: fraction must be > 0 and < 1; got {fraction!r}")
    rng = np.random.default_rng(checks.whole("split_images", "seed", seed, 0))
    held: list[Any] = []
    labels = np.asarray(source.labels)
    for label in range(len(source.classes)):
        items = rng.permutation(np.flatnonzero(labels == label))
        if items.size > 1:
            held += items[: min(max(1, round(fraction * items.size)), items.size - 1)].tolist()
    if not held:
        raise ValueError(
            f"split_images: a class must have two images or more; got {len(labels)} images of"
            f" {len(source.classes)} classes"
        )
    rest = np.setdiff1d(np.arange(len(labels)), held)
    return ImageSubset(source, rest), ImageSubset(source, np.sort(held))


def cache_images(source: ImageSource, size: int, items: ArrayLike | None = None) -> ArrayImages:
    """Read images once, their shorter side resized to `size` and the middle cut out, as u8.

    Images that cannot be read are left out; the source names them.

    Args:
        source: of images of any sizes.
        size: rows and columns of the results.
        items: numbers of the images; None is all.

    Shape:
        images (N, size, size, C)

    Raises:
        ValueError: none can be read.
        ImportError: Pillow is not there, and an image is of another size.

    Example:
        >>> source = ArrayImages(np.zeros((3, 8, 8), np.uint8), [0, 1, 0])
        >>> cache_images(source, 8).images.shape
        (3, 8, 8, 1)
    """
    _need_source("cache_images", source)
    every = np.arange(len(source))
    numbers = every if items is None else checks.array("cache_images", "items", items, 1, "iu")
    fit = ResizedCenterCrop(size)
    made, labels = [], []
    for number in numbers:
        image = source.image(int(number))
        if image is not None:
            made.append(np.rint(fit(image) * 255.0).astype(np.uint8))
            labels.append(int(source.labels[number]))
    if not made:
        raise ValueError(f"cache_images: an image must be readable; got none of {len(numbers)}")
    return ArrayImages(np.stack(made), labels, source.classes)
