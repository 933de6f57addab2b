# SPDX-License-Identifier: MIT
"""Transforms of images one after another: functions of an image, seeded or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ... import checks
from .pixels import pixels

__all__ = ["ImageTransform", "Pipeline"]

ImageTransform = Callable[..., Any]
"""A function of an image, or of an image and a generator."""


class Pipeline:
    """Transforms in their order.

    Args:
        who: the owner, for messages.
        transforms: functions of an image (H, W, C), f32 from 0 to 1; one with a second parameter
            that has no default, or that is named `rng`, is given a `np.random.Generator` with it.

    Raises:
        TypeError: one cannot be called, or is a class.
    """

    def __init__(self, who: str, transforms: Any) -> None:
        self._who = who
        self._transforms: list[ImageTransform] = []
        if callable(transforms):
            raise TypeError(f"{who}: transforms must be a list of functions; got {transforms!r}")
        for each in checks.items(who, "transforms", transforms):
            if isinstance(each, type):
                raise TypeError(f"{who}: transforms must be made; got the class {each.__name__}")
            self._transforms.append(checks.function(who, "each transform", each, "image -> image"))
        self._seeded = [_is_seeded(each) for each in self._transforms]

    def __iter__(self) -> Iterator[ImageTransform]:
        return iter(self._transforms)

    def __call__(self, image: Any, rng: np.random.Generator) -> np.ndarray:
        """Return the transformed image, f32 (H, W, C)."""
        for transform, seeded in zip(self._transforms, self._seeded, strict=True):
            image = transform(image, rng) if seeded else transform(image)
        return np.asarray(pixels(self._who, image), np.float32)


def _is_seeded(transform: ImageTransform) -> bool:
    """Return True for a transform that takes a generator behind the image."""
    try:
        parameters: Sequence[inspect.Parameter] = list(
            inspect.signature(transform).parameters.values()
        )
    except (TypeError, ValueError):  # some functions of C do not tell
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for each in parameters if each.kind in places]
    return len(given) > 1 and (
        given[1].default is inspect.Parameter.empty or given[1].name == "rng"
    )
