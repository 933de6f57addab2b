# SPDX-License-Identifier: MIT
"""Images with their classes: from arrays, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...errors import FormatError, ShapeError
from ..batch import Batch
from ..dataset import IGNORE_INDEX, check_rng, item_numbers
from ..fingerprint import fingerprint
from ..item_random import item_rng, number_of, virtual_items
from .pipeline import ImageTransform, Pipeline

__all__ = [
    "ArrayImages",
    "ImageDataset",
    "ImageSource",
    "class_weights",
]


class ImageSource(Protocol):
    """A source of images for an `ImageDataset`.

    Attributes:
        labels: class of each image, (N,).
        classes: names of the classes.
    """

    labels: np.ndarray
    classes: list[str]

    def __len__(self) -> int:
        """Number of images."""

    def image(self, item: int) -> np.ndarray | None:
        """An image (H, W, C) f32 from 0 to 1; None if it cannot be read."""


class ArrayImages:
    """Images in an array, which may be memory-mapped.

    Args:
        images: u8, from 0 to 255, or floats from 0 to 1.
        labels: their classes, integers from 0.
        classes: names of the classes; None names them by their numbers.

    Shape:
        images (N, H, W) or (N, H, W, C), labels (N,)

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: pixels are of another kind or out of range, or labels are not classes.

    Example:
        >>> source = ArrayImages(np.zeros((5, 8, 8, 3), np.uint8), [0, 1, 2, 1, 0])
        >>> len(source), source.image(0).shape
        (5, (8, 8, 3))
    """

    def __init__(
        self, images: np.ndarray, labels: ArrayLike, classes: Sequence[str] | None = None
    ) -> None:
        self.images = np.asanyarray(images)
        given = np.asarray(labels)
        if self.images.ndim not in (3, 4) or given.shape != self.images.shape[:1]:
            raise ShapeError(
                "ArrayImages: needs images (N, H, W) or (N, H, W, C), labels (N,); got"
                f" {self.images.shape}, {given.shape}"
            )
        if not self.images.size:
            raise ShapeError(f"ArrayImages: needs images; got {self.images.shape}")
        if self.images.dtype != np.uint8 and self.images.dtype.kind != "f":
            raise ValueError(f"ArrayImages: images must be u8 or floats; got {self.images.dtype}")
        if given.dtype.kind not in "iu" or given.min() < 0:
            raise ValueError("ArrayImages: labels must be integers >= 0")
        count = int(given.max()) + 1
        names = map(str, range(count)) if classes is None else classes
        self.classes = list(checks.items("ArrayImages", "classes", names))
        if count > len(self.classes):
            raise ValueError(
                f"ArrayImages: labels must be below the {len(self.classes)} classes; got"
                f" {count - 1}"
            )
        self.labels = given.astype(np.int32)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def fingerprint(self) -> int:
        """Return a checksum of the images."""
        return fingerprint(self.images)

    def image(self, item: int) -> np.ndarray:
        """An image (H, W, C) f32 from 0 to 1."""
        last = len(self) - 1
        raw = np.asarray(self.images[checks.whole("ArrayImages.image", "item", item, 0, last)])
        image = raw.astype(np.float32)
        if raw.dtype == np.uint8:
            image /= 255.0
        elif not (image.min() >= 0.0 and image.max() <= 1.0):
            raise ValueError(
                f"ArrayImages: floats must be from 0 to 1; image {item} has {image.min()} to"
                f" {image.max()}; divide by the largest, or give u8"
            )
        return image.reshape(*image.shape[:2], -1)


def class_weights(labels: ArrayLike, classes: int | None = None) -> np.ndarray:
    """Return weights that make all classes count the same: N / (K · images of the class).

    Args:
        labels: class of each image.
        classes: K; None is the highest label plus one.

    Shape:
        labels (N,) -> (K,) f32

    Raises:
        ValueError: labels are no classes, or a class has no image.

    Example:
        >>> class_weights([0, 0, 0, 1]).tolist()
        [0.6666666865348816, 2.0]
    """
    array = np.asarray(labels)
    if classes is not None:
        classes = checks.whole("class_weights", "classes", classes, 1)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError("class_weights: labels must be integers >= 0, at least one")
    counts = np.bincount(array, minlength=classes or 0)
    if classes is not None and counts.size > classes:
        raise ValueError(
            f"class_weights: labels must be below classes={classes}; got {array.max()}"
        )
    if not counts.all():
        raise ValueError(f"class_weights: class {int(np.argmin(counts))} has no image")
    return (array.size / (counts.size * counts)).astype(np.float32)


class ImageDataset:
    """Batches of images, which are transformed again in every epoch; give them to a `Loader`.

    What is drawn follows from the loader's seed, the epoch and the item: a resumed run sees the
    same. An image that cannot be read is a black one without target, of the shape of the others: in
    a batch that has no other, of that of the first image of the source that can be read.

    Args:
        source: an `ImageFolder`, `ArrayImages` or one's own.
        transforms: applied in order; images must come out in one shape. Each is a function of an
            image, or of an image and a generator; see `ImageTransform`.
        mixup: above 0, each image is mixed with another, by a share drawn from Beta(mixup, mixup),
            and so are their targets, which then are distributions.
        weights: how often an image is drawn, relative to others; "balanced" draws each class as
            often. An epoch is then as many draws as there are images.

    Shape:
        x (B, C, H, W) f32; y (B,) i32, or (B, K) f32 with mixup

    Raises:
        ValueError: mixup is negative, or weights are no weights.
        FormatError: from `batch`, when none of the images can be read.

    Source: mixup: Zhang et al. 2017, arXiv:1710.09412.

    Example:
        >>> source = ArrayImages(np.zeros((6, 8, 8), np.uint8), [0, 1, 1, 1, 1, 1])
        >>> data = ImageDataset(source, [RandomCrop(8, padding=1)], weights="balanced")
        >>> x, y = data.batch(data.order(np.random.default_rng(0)))
        >>> x.shape, y.dtype
        ((6, 1, 8, 8), dtype('int32'))
    """

    def __init__(
        self,
        source: ImageSource,
        transforms: Sequence[ImageTransform] = (),
        *,
        mixup: float = 0.0,
        weights: ArrayLike | str | None = None,
    ) -> None:
        if not all(hasattr(source, name) for name in ("__len__", "image", "labels", "classes")):
            raise TypeError(
                "ImageDataset: source must be an ImageFolder, ArrayImages, or have what"
                f" ImageSource says; got {type(source).__name__}"
            )
        self.source = source
        self._shape: tuple[int, ...] | None = None
        self.transforms = Pipeline("ImageDataset", transforms)
        self.mixup = checks.number("ImageDataset", "mixup", mixup, 0)
        if isinstance(weights, str):
            if weights != "balanced":
                raise ValueError(
                    f'ImageDataset: weights must be "balanced" or numbers; got {weights!r}'
                )
            weights = class_weights(source.labels, len(source.classes))[source.labels]
        try:
            self.weights = None if weights is None else np.asarray(weights, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"ImageDataset: weights must be numbers; got {weights!r}") from error
        if self.weights is not None:
            good = self.weights.shape == (len(source),) and np.isfinite(self.weights).all()
            if not good or self.weights.min() < 0 or not self.weights.sum():
                raise ValueError(
                    f"ImageDataset: weights must be {len(source)} numbers >= 0, not all 0"
                )

    def __len__(self) -> int:
        """Number of images."""
        return len(self.source)

    def fingerprint(self) -> int:
        """Return a checksum of the images and labels."""
        of = getattr(self.source, "fingerprint", int)
        return fingerprint(of(), np.asarray(self.source.labels), len(self.source.classes))

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Return an epoch's items with random numbers; without a generator, each once."""
        count, rng = len(self), check_rng("ImageDataset.order", rng)
        if rng is None:
            return virtual_items(np.arange(count), count)
        if self.weights is None:
            return virtual_items(rng.permutation(count), count, rng)
        chosen = rng.choice(count, count, p=self.weights / self.weights.sum())
        return virtual_items(chosen, count, rng)

    def batch(self, items: np.ndarray) -> Batch:
        """Read and transform images; see the class for the shapes."""
        numbers = item_numbers("ImageDataset.batch", items, None, 1)
        made = [self._item(int(item)) for item in numbers]
        shapes = {image.shape for image, _ in made if image is not None}
        if len(shapes) > 1:
            raise ShapeError(
                f"ImageDataset: images of a batch must have one shape; got {sorted(shapes)};"
                " end the transforms with a crop, or with Resize to (rows, columns)"
            )
        shape = shapes.pop() if shapes else self._shape_of_any()
        images = [np.zeros(shape, np.float32) if image is None else image for image, _ in made]
        x = np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2), np.float32)
        return Batch(x, np.stack([target for _, target in made]))

    def _shape_of_any(self) -> tuple[int, ...]:
        """The shape of a black image where no other of its batch tells it."""
        if self._shape is None:
            rng = np.random.default_rng(0)  # transforms draw; their results have one shape
            for number in range(len(self)):
                image = self._image(number, rng)
                if image is not None:
                    self._shape = image.shape
                    break
            else:
                raise FormatError(
                    "ImageDataset: the source must have an image that can be read; got none of"
                    f" {len(self)}; see the source's report"
                )
        return self._shape

    def _item(self, item: int) -> tuple[np.ndarray | None, np.ndarray]:
        """An image and its target."""
        count, classes = len(self), len(self.source.classes)
        rng = item_rng(item, count)
        number = number_of(item, count)
        label = int(self.source.labels[number])
        image = self._image(number, rng)
        if not self.mixup:
            return image, np.array(IGNORE_INDEX if image is None else label, np.int32)
        other = int(rng.integers(0, count))
        share = np.float32(rng.beta(self.mixup, self.mixup))
        mate = self._image(other, rng)
        target = np.zeros(classes, np.float32)
        if image is None or mate is None:
            return None, target
        if image.shape != mate.shape:
            raise ShapeError(
                "ImageDataset: images that are mixed must have one shape; got"
                f" {image.shape} and {mate.shape}; end the transforms with a crop"
            )
        target[label] += share
        target[int(self.source.labels[other])] += 1 - share
        return share * image + (1 - share) * mate, target

    def _image(self, number: int, rng: np.random.Generator) -> np.ndarray | None:
        """A transformed image, or None."""
        image = self.source.image(number)
        return None if image is None else self.transforms(image, rng)
