# SPDX-License-Identifier: MIT
"""What is done to images before they are learned; all of it on arrays (H, W, C) from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ShapeError
from ._check import check_floats, check_image, decimal, set_fields, several, whole

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "HorizontalFlip",
    "ImageTransform",
    "Normalize",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
]

ImageTransform = Callable[[np.ndarray, np.random.Generator], np.ndarray]

# ITU-R BT.601, as Pillow's and torchvision's grey.
_GREY = np.array([0.299, 0.587, 0.114], np.float32)


def pillow(who: str) -> Any:
    """The package that reads and resizes images."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
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


def _span(who: str, name: str, value: Any, high: float) -> tuple[float, float]:
    """Two ascending numbers above 0."""
    good = several(value) and len(value) == 2
    low, top = (decimal(who, name, n, 0, high) for n in value) if good else (0.0, 0.0)
    if not 0 < low <= top:
        bound = "" if high == math.inf else f" and <= {high:g}"
        raise ValueError(f"{who}: {name} must ascend, two numbers > 0{bound}; got {value}")
    return low, top


def _resize(image: np.ndarray, rows: int, columns: int, box: Any = None) -> np.ndarray:
    """Bilinear and antialiased, channel by channel."""
    if box is None and image.shape[:2] == (rows, columns):
        return image
    library = pillow("Resize")
    bilinear = library.Image.Resampling.BILINEAR
    made = np.empty((rows, columns, image.shape[2]), np.float32)
    for channel in range(image.shape[2]):
        plane = library.Image.fromarray(np.ascontiguousarray(image[:, :, channel], np.float32))
        made[:, :, channel] = plane.resize((columns, rows), bilinear, box)
    return np.clip(made, 0.0, 1.0, out=made)


@dataclass(frozen=True)
class Resize:
    """Make an image larger or smaller; needs Pillow.

    Args:
        size: length of the shorter side, or (rows, columns).

    Shape:
        (H, W, C) -> the same with other H and W

    Raises:
        ValueError: a size is not positive.
        ImportError: Pillow is not there.

    Example:
        >>> Resize(4)(np.zeros((8, 12, 3)), np.random.default_rng(0)).shape
        (4, 6, 3)
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        _size("Resize", self.size)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Resize."""
        check_floats("Resize", image)
        if isinstance(self.size, (tuple, list)):
            return _resize(image, *self.size)
        rows, columns = image.shape[:2]
        factor = self.size / min(rows, columns)
        return _resize(image, max(1, round(rows * factor)), max(1, round(columns * factor)))


@dataclass(frozen=True)
class CenterCrop:
    """Cut out the middle.

    Args:
        size: of the crop, one number or (rows, columns).

    Shape:
        (H, W, C) -> (rows, columns, C)

    Raises:
        ValueError: a size is not positive.
        ShapeError: the image is smaller.

    Example:
        >>> CenterCrop(2)(np.arange(16).reshape(4, 4, 1), np.random.default_rng(0)).ravel().tolist()
        [5, 6, 9, 10]
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        _size("CenterCrop", self.size)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Crop."""
        rows, columns = _room("CenterCrop", image, self.size)
        top, left = (image.shape[0] - rows) // 2, (image.shape[1] - columns) // 2
        return image[top : top + rows, left : left + columns]


@dataclass(frozen=True)
class RandomCrop:
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

    size: int | tuple[int, int]
    padding: int = 0

    def __post_init__(self) -> None:
        _size("RandomCrop", self.size)
        set_fields(self, padding=whole("RandomCrop", "padding", self.padding, 0))

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Crop."""
        check_image("RandomCrop", image)
        if self.padding:
            image = np.pad(image, ((self.padding,) * 2, (self.padding,) * 2, (0, 0)))
        rows, columns = _room("RandomCrop", image, self.size)
        top = int(rng.integers(0, image.shape[0] - rows + 1))
        left = int(rng.integers(0, image.shape[1] - columns + 1))
        return image[top : top + rows, left : left + columns]


@dataclass(frozen=True)
class RandomResizedCrop:
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

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _size("RandomResizedCrop", self.size)
        who = "RandomResizedCrop"
        ratio = _span(who, "ratio", self.ratio, math.inf)
        set_fields(self, scale=_span(who, "scale", self.scale, 1), ratio=ratio)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Crop and resize."""
        height, width = check_floats("RandomResizedCrop", image).shape[:2]
        rows, columns = _size("RandomResizedCrop", self.size)
        low, high = np.log(self.ratio)
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(low, high))
            w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if w <= width and h <= height:
                left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
                return _resize(image, rows, columns, (left, top, left + w, top + h))
        return _resize(_middle(image, *self.ratio), rows, columns)


def _middle(image: np.ndarray, low: float, high: float) -> np.ndarray:
    """The largest part around the middle whose width / height is from `low` to `high`."""
    height, width = image.shape[:2]
    h, w = height, width
    if width / height < low:
        h = max(1, round(width / low))
    elif width / height > high:
        w = max(1, round(height * high))
    top, left = (height - h) // 2, (width - w) // 2
    return image[top : top + h, left : left + w]


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirror some images, left to right.

    Args:
        p: share of the images, from 0 to 1.

    Shape:
        (H, W, C) -> (H, W, C)

    Raises:
        ValueError: the share is out of range.

    Example:
        >>> image = np.arange(3.0).reshape(1, 3, 1)
        >>> HorizontalFlip(p=1)(image, np.random.default_rng(0)).ravel().tolist()
        [2.0, 1.0, 0.0]
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_fields(self, p=decimal("HorizontalFlip", "p", self.p, 0, 1))

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Flip, or not."""
        check_image("HorizontalFlip", image)
        return image[:, ::-1] if rng.random() < self.p else image


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue, in random order.

    Each of the first three is multiplied by a number drawn from 1 - s to 1 + s; the hue is turned
    by one drawn from -s to s, of a whole turn.

    Args:
        brightness: its s, from 0 to 1.
        contrast: its s; around the image's mean grey.
        saturation: its s; around each pixel's grey. Images of one channel have none.
        hue: its s, from 0 to 0.5. Images of one channel have none.

    Shape:
        (H, W, C) -> (H, W, C)

    Raises:
        ValueError: a strength is out of range.

    Source: Krizhevsky et al. 2012; the formulas are torchvision's.

    Example:
        >>> ColorJitter(0.2)(np.full((1, 1, 3), 0.5), np.random.default_rng(0)).shape
        (1, 1, 3)
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        limits = {"brightness": 1, "contrast": 1, "saturation": 1, "hue": 0.5}
        for name, limit in limits.items():
            set_fields(self, **{name: decimal("ColorJitter", name, getattr(self, name), 0, limit)})

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Jitter."""
        check_floats("ColorJitter", image)
        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        factors = [rng.uniform(1 - s, 1 + s) for s in strengths]
        for which in rng.permutation(4):
            colour = image.shape[2] == 3
            if not strengths[which]:
                continue
            if which == 3:
                image = _turn_hue(image, factors[3] - 1) if colour else image
                continue
            around: Any = 0.0
            if which:
                grey = (image @ _GREY)[:, :, None] if colour else image
                around = grey.mean(dtype=np.float64) if which == 1 else grey
            mixed = around + (image - around) * factors[which]
            image = np.clip(mixed, 0.0, 1.0).astype(np.float32)
        return image


def _turn_hue(image: np.ndarray, turn: float) -> np.ndarray:
    """Add to the hue of HSV, leaving saturation and value: each colour of a pixel by its own."""
    high = image.max(axis=2)
    chroma = high - image.min(axis=2)
    red, green, blue = np.moveaxis(image, 2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sixths = np.select(
            [high == red, high == green],
            [(green - blue) / chroma, 2 + (blue - red) / chroma],
            4 + (red - green) / chroma,
        )
    sixths = np.where(chroma > 0, sixths, 0.0) + 6 * turn
    made = np.empty_like(image, np.float32)
    for channel, start in enumerate((5, 3, 1)):
        k = (start + sixths) % 6
        made[:, :, channel] = high - chroma * np.clip(np.minimum(k, 4 - k), 0, 1)
    return made


@dataclass(frozen=True)
class Normalize:
    """(image - mean) / std; the last of all transforms.

    Args:
        mean: one for each channel.
        std: one for each channel, > 0.

    Shape:
        (H, W, C) -> (H, W, C)

    Raises:
        ValueError: a deviation is not positive, or the two differ in number.
        ShapeError: the image has another number of channels.

    Example:
        >>> Normalize((0.5,), (0.25,))(np.ones((1, 1, 1)), np.random.default_rng(0)).tolist()
        [[[2.0]]]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        found = {}
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not several(values):
                raise ValueError(
                    f"Normalize: {name} must be numbers, one for each channel; got {values!r}"
                )
            found[name] = tuple(decimal("Normalize", name, n, -math.inf) for n in values)
        if len(found["mean"]) != len(found["std"]) or not all(s > 0 for s in found["std"]):
            raise ValueError(
                "Normalize: mean and std must be as many, std > 0; got"
                f" mean={self.mean}, std={self.std}"
            )
        set_fields(self, **found)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Normalise."""
        check_image("Normalize", image)
        if image.shape[2] != len(self.mean):
            raise ShapeError(
                f"Normalize: the image must have {len(self.mean)} channels as mean has; got"
                f" {image.shape[2]}"
            )
        shifted = image - np.array(self.mean, np.float32)
        return (shifted / np.array(self.std, np.float32)).astype(np.float32)


def _room(who: str, image: np.ndarray, size: Any) -> tuple[int, int]:
    """The crop's size, if the image is as large."""
    check_image(who, image)
    rows, columns = _size(who, size)
    if image.shape[0] < rows or image.shape[1] < columns:
        raise ShapeError(
            f"{who}: the image must be at least {(rows, columns)}; got {image.shape[:2]};"
            " put Resize before it"
        )
    return rows, columns
