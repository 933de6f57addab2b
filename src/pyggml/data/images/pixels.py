# SPDX-License-Identifier: MIT
"""Images as arrays (H, W, C), and checks of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError

__all__ = ["float_pixels", "pixels"]


def pixels(who: str, image: Any) -> np.ndarray:
    """Return an image as an array (H, W, C).

    Args:
        who: the caller, for messages.
        image: such an array, a torch tensor (C, H, W), or a picture of Pillow, whose bytes from 0
            to 255 become floats from 0 to 1.

    Raises:
        ShapeError: it is of another shape, or not an image.
    """
    if hasattr(image, "detach") and hasattr(image, "numpy"):
        image = image.detach().cpu().numpy()
        image = np.moveaxis(image, 0, -1) if image.ndim == 3 else image
    elif hasattr(image, "getbands"):
        image = np.asarray(image)
        image = (image if image.ndim == 3 else image[:, :, None]).astype(np.float32) / 255.0
    if not isinstance(image, np.ndarray) or image.ndim != 3 or 0 in image.shape:
        got = getattr(image, "shape", None) or type(image).__name__
        raise ShapeError(f"{who}: an image must be an array (H, W, C); got {got}")
    return image


def float_pixels(who: str, image: Any) -> np.ndarray:
    """Return an image as an array of floats; raise on integers, of which 255 is white."""
    array = pixels(who, image)
    if array.dtype.kind != "f":
        raise DTypeError(
            f"{who}: an image must have floats from 0 to 1; got {array.dtype}; divide by 255"
        )
    return array
