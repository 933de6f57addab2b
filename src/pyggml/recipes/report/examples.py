# SPDX-License-Identifier: MIT
"""The examples that a classifier of images is most wrong about."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["WorstExamples"]

_MOST = 12


class WorstExamples:
    """The wrongly classified images whose true class is the least probable, at most twelve.

    Args:
        classes: names.

    Example:
        >>> worst = WorstExamples(["cat", "dog"])
        >>> worst.add(np.zeros((2, 1, 4, 4)), np.array([[0.0, -1.0], [0.0, 3.0]]), np.array([0, 0]))
        >>> [(each["item"], each["true"], each["predicted"]) for each in worst.to_list()]
        [(1, 'cat', 'dog')]
    """

    def __init__(self, classes: Sequence[str]):
        self._classes, self._seen = classes, 0
        self._found: list[tuple[float, int, int, int, np.ndarray]] = []

    def add(self, images: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> None:
        """Look at the images of a batch.

        Args:
            images: from 0 to 1.
            logits: of the classes.
            labels: true classes.

        Shape:
            images (N, C, H, W), logits (N, K), labels (N,)
        """
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances = (shifted / shifted.sum(axis=1, keepdims=True))[np.arange(len(labels)), labels]
        predicted = logits.argmax(axis=1)
        for i in np.flatnonzero(predicted != labels):
            number, own, other = self._seen + int(i), int(labels[i]), int(predicted[i])
            self._found.append((float(chances[i]), number, own, other, images[i].copy()))
        self._found = sorted(self._found, key=lambda each: each[:2])[:_MOST]
        self._seen += len(labels)

    def to_list(self) -> list[dict[str, Any]]:
        """Return JSON-ready values, the worst first.

        Returns:
            For each image `item`, its number; `true` and `predicted`, names; `probability` of the
            true class; `image`, a PNG in base64, or None without Pillow.
        """
        return [
            {
                "item": number,
                "true": self._classes[own],
                "predicted": self._classes[other],
                "probability": chance,
                "image": _png(image),
            }
            for chance, number, own, other, image in self._found
        ]


def _png(image: np.ndarray) -> str | None:
    """Return an image (C, H, W) as a PNG in base64; None without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return None
    levels = np.clip(np.rint(image * 255), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    levels = levels[..., 0] if levels.shape[2] == 1 else levels
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
