# SPDX-License-Identifier: MIT
"""Flips, colours and normalisation of images; on arrays (H, W, C) from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import checks
from ...errors import ShapeError
from .pixels import float_pixels, pixels

__all__ = [
    "ColorJitter",
    "HorizontalFlip",
    "Normalize",
]

# ITU-R BT.601, as Pillow's and torchvision's grey.
_GREY = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass
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
        self.p = checks.number("HorizontalFlip", "p", self.p, 0, 1)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Flip, or not."""
        image = pixels("HorizontalFlip", image)
        return image[:, ::-1] if rng.random() < self.p else image


@dataclass
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
            setattr(self, name, checks.number("ColorJitter", name, getattr(self, name), 0, limit))

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Jitter."""
        image = float_pixels("ColorJitter", image)
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


@dataclass
class Normalize:
    """Return (image - mean) / std; put it last among the transforms.

    Args:
        mean: one for each channel.
        std: one for each channel, > 0.

    Shape:
        (H, W, C) -> (H, W, C)

    Raises:
        ValueError: a deviation is not positive, or the two differ in number.
        ShapeError: the image has another number of channels.

    Example:
        >>> Normalize((0.5,), (0.25,))(np.ones((1, 1, 1))).tolist()
        [[[2.0]]]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        who = "Normalize"
        mean, std = (checks.items(who, name, getattr(self, name)) for name in ("mean", "std"))
        self.mean = tuple(checks.number(who, "mean", each) for each in mean)
        self.std = tuple(checks.number(who, "std", each, above=0) for each in std)
        if len(self.mean) != len(self.std):
            raise ValueError(f"{who}: mean and std must be as many; got {self.mean}, {self.std}")

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Normalise."""
        image = pixels("Normalize", image)
        if image.shape[2] != len(self.mean):
            raise ShapeError(
                f"Normalize: the image must have {len(self.mean)} channels as mean has; got"
                f" {image.shape[2]}"
            )
        shifted = image - np.array(self.mean, np.float32)
        return (shifted / np.array(self.std, np.float32)).astype(np.float32)
