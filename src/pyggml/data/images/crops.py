# SPDX-License-Identifier: MIT
"""Resizing and cropping of images, which are arrays (H, W, C) from 0 to 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import checks
from ...errors import ShapeError
from .pixels import float_pixels, pixels

__all__ = ["CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize", "ResizedCenterCrop"]


_BAND_PIXELS = 2**20


def pillow(who: str) -> Any:
    """The package that reads and resizes images."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ModuleNotFoundError as error:
        cure = 'pip install "pyggml[images]"'
        raise ImportError(f"{who}: needs the package pillow; {cure}") from error
    return PIL


def _size(who: str, size: Any) -> tuple[int, int]:
    """(rows, columns) of one number or two."""
    both = (size, size) if isinstance(size, (int, np.integer)) else size
    good = isinstance(both, (tuple, list)) and len(both) == 2
    if not good or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1 for n in both
    ):
        raise ValueError(f"{who}: size must be an integer >= 1 or (rows, columns); got {size!r}")
    return int(both[0]), int(both[1])


def _span(who: str, name: str, value: Any, most: float | None = None) -> tuple[float, float]:
    """Two ascending numbers above 0."""
    pair = checks.items(who, name, value, 2)
    low, high = (checks.number(who, name, each, most=most, above=0) for each in pair)
    if low > high:
        raise ValueError(f"{who}: {name} must ascend; got {value}")
    return low, high


def _resize(image: np.ndarray, rows: int, columns: int, box: Any = None) -> np.ndarray:
    """Bilinear and antialiased, channel by channel."""
    if box is None and image.shape[:2] == (rows, columns):
        return image
    library = pillow("Resize")
    bilinear = library.Image.Resampling.BILINEAR
    made = np.empty((rows, columns, image.shape[2]), np.float32)
    for channel in range(image.shape[2]):
        # No name holds a plane while the next is made.
        made[:, :, channel] = _plane(library, image[:, :, channel]).resize(
            (columns, rows), bilinear, box
        )
    return np.clip(made, 0.0, 1.0, out=made)


def _plane(library: Any, channel: np.ndarray) -> Any:
    """A picture of floats, which is copied in bands, so that there is one large copy."""
    height, width = channel.shape
    plane = library.Image.new("F", (width, height))
    step = max(1, _BAND_PIXELS // width)
    for top in range(0, height, step):
        band = np.ascontiguousarray(channel[top : top + step], np.float32)
        plane.paste(library.Image.fromarray(band), (0, top))
    return plane


def _cut(image: np.ndarray, top: int, left: int, rows: int, columns: int) -> np.ndarray:
    """A part of an image."""
    return image[top : top + rows, left : left + columns]


def _middle(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The part around the middle."""
    height, width = image.shape[:2]
    return _cut(image, (height - rows) // 2, (width - columns) // 2, rows, columns)


@dataclass
class _Sized:
    """A transform with a size, one number or (rows, columns)."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        _size(type(self).__name__, self.size)


@dataclass
class Resize(_Sized):
    """Make an image larger or smaller; needs Pillow.

    Args:
        size: length of the shorter side, or (rows, columns).

    Shape:
        (H, W, C) -> the same with other H and W

    Raises:
        ValueError: a size is not positive.
        ImportError: Pillow is not there.

    Example:
        >>> Resize(4)(np.zeros((8, 12, 3))).shape
        (4, 6, 3)
    """

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Resize."""
        image = float_pixels("Resize", image)
        if isinstance(self.size, (tuple, list)):
            return _resize(image, *self.size)
        rows, columns = image.shape[:2]
        factor = self.size / min(rows, columns)
        return _resize(image, max(1, round(rows * factor)), max(1, round(columns * factor)))


@dataclass
class CenterCrop(_Sized):
    """Cut out the middle.

    Args:
        size: of the crop, one number or (rows, columns).

    Shape:
        (H, W, C) -> (rows, columns, C)

    Raises:
        ValueError: a size is not positive.
        ShapeError: the image is smaller.

    Example:
        >>> CenterCrop(2)(np.arange(16).reshape(4, 4, 1)).ravel().tolist()
        [5, 6, 9, 10]
    """

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Crop."""
        image = pixels("CenterCrop", image)
        return _middle(image, *_room("CenterCrop", image, self.size))


@dataclass
class ResizedCenterCrop(_Sized):
    """`Resize` to the shorter side and `CenterCrop` in one; needs Pillow.

    Only what the crop keeps is computed, so that a long strip takes no more memory than a square.
    For (rows, columns) the image is made as small as still covers both.

    Args:
        size: of the result, one number or (rows, columns).

    Shape:
        (H, W, C) -> (rows, columns, C)

    Raises:
        ValueError: the size is not positive.
        ImportError: Pillow is not there.

    Example:
        >>> ResizedCenterCrop(4)(np.zeros((8, 12, 3))).shape
        (4, 4, 3)
    """

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Resize and crop."""
        image = float_pixels("ResizedCenterCrop", image)
        height, width = image.shape[:2]
        rows, columns = _size("ResizedCenterCrop", self.size)
        if height * columns == width * rows:
            return _resize(image, rows, columns)
        factor = max(rows / height, columns / width)
        high, wide = max(rows, round(height * factor)), max(columns, round(width * factor))
        # The crop's edges, which are whole pixels of the resized image, in those of the given one.
        top, left = (high - rows) // 2, (wide - columns) // 2
        down, across = height / high, width / wide
        box = (
            left * across,
            top * down,
            min((left + columns) * across, width),
            min((top + rows) * down, height),
        )
        return _resize(image, rows, columns, box)


@dataclass
class RandomCrop(_Sized):
    """Cut out a part from anywhere.

    Args:
        size: of the crop, one number or (rows, columns).
        padding: rows and columns of zeros that are put around the image first.

    Shape:
        (H, W, C) -> (rows, columns, C)

    Raises:
        ValueError: a size is out of range.
        ShapeError: the image is smaller, padding included.

    Example:
        >>> RandomCrop(8, padding=2)(np.ones((8, 8, 3)), np.random.default_rng(0)).shape
        (8, 8, 3)
    """

    padding: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.padding = checks.whole("RandomCrop", "padding", self.padding, 0)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Crop."""
        image = pixels("RandomCrop", image)
        if self.padding:
            image = np.pad(image, ((self.padding,) * 2, (self.padding,) * 2, (0, 0)))
        rows, columns = _room("RandomCrop", image, self.size)
        top = int(rng.integers(0, image.shape[0] - rows + 1))
        left = int(rng.integers(0, image.shape[1] - columns + 1))
        return _cut(image, top, left, rows, columns)


@dataclass
class RandomResizedCrop(_Sized):
    """Cut out a part of random area and shape, and resize it; needs Pillow.

    Where ten attempts find no part that fits, it is the middle of the image, as large as the
    ratios permit.

    Args:
        size: of the result, one number or (rows, columns).
        scale: share of the area, from and to, > 0 and <= 1.
        ratio: columns / rows, from and to, > 0.

    Shape:
        (H, W, C) -> (rows, columns, C)

    Raises:
        ValueError: a number is out of range.
        ImportError: Pillow is not there.

    Source: Szegedy et al. 2014, arXiv:1409.4842; as torchvision's.

    Example:
        >>> RandomResizedCrop(8)(np.ones((20, 30, 3)), np.random.default_rng(0)).shape
        (8, 8, 3)
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        who = "RandomResizedCrop"
        self.scale = _span(who, "scale", self.scale, 1)
        self.ratio = _span(who, "ratio", self.ratio)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Crop and resize."""
        image = float_pixels("RandomResizedCrop", image)
        height, width = image.shape[:2]
        rows, columns = _size("RandomResizedCrop", self.size)
        low, high = np.log(self.ratio)
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(low, high))
            w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if w <= width and h <= height:
                left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
                return _resize(image, rows, columns, (left, top, left + w, top + h))
        return _resize(_middle(image, *_within(image, *self.ratio)), rows, columns)


def _within(image: np.ndarray, low: float, high: float) -> tuple[int, int]:
    """Rows and columns of the largest part whose width / height is from `low` to `high`."""
    height, width = image.shape[:2]
    if width / height < low:
        return max(1, round(width / low)), width
    if width / height > high:
        return height, max(1, round(height * high))
    return height, width


def _room(who: str, image: np.ndarray, size: Any) -> tuple[int, int]:
    """The crop's size, if the image is as large."""
    rows, columns = _size(who, size)
    if image.shape[0] < rows or image.shape[1] < columns:
        raise ShapeError(
            f"{who}: the image must be at least {(rows, columns)}; got {image.shape[:2]};"
            " put Resize before it"
        )
    return rows, columns
