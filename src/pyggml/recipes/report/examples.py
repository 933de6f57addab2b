# SPDX-License-Identifier: MIT
"""The predictions of a classifier, and the examples that it is most wrong about."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import checks

__all__ = ["ClassResults", "WorstExamples"]

_MOST = 12


@dataclass(frozen=True)
class ClassResults:
    """The predictions of a classifier for validation examples.

    Args:
        classes: names.
        confusion: examples by true class (rows) and by predicted class.
        worst: the examples that were mistaken for others with the most certainty;
            see `WorstExamples`.
    """

    classes: list[str]
    confusion: np.ndarray
    worst: list[dict[str, Any]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of the examples whose class was predicted."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def of_classes(self) -> dict[str, float | None]:
        """The accuracy of each class; None for a class without validation examples."""
        counts = self.confusion.sum(axis=1)
        hits = np.diag(self.confusion)
        return {
            name: float(hit / count) if count else None
            for name, hit, count in zip(self.classes, hits, counts, strict=True)
        }

    def to_dict(self, unit: str = "images") -> dict[str, Any]:
        """Return JSON-ready values.

        Args:
            unit: the name of the examples' number.
        """
        checks.text("ClassResults.to_dict", "unit", unit)
        return {
            "accuracy": self.accuracy,
            unit: int(self.confusion.sum()),
            "classes": self.of_classes,
            "confusion": self.confusion.tolist(),
            "worst": self.worst,
        }


class WorstExamples:
    """The wrongly classified examples whose true class is the least probable, at most twelve.

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
        self._found: list[tuple[float, int, int, int, Any]] = []

    def add(self, examples: Sequence[Any], logits: np.ndarray, labels: np.ndarray) -> None:
        """Look at a batch.

        Args:
            examples: texts, or images from 0 to 1.
            logits: of the classes.
            labels: true classes.

        Shape:
            images (N, C, H, W); logits (N, K), labels (N,)
        """
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances = (shifted / shifted.sum(axis=1, keepdims=True))[np.arange(len(labels)), labels]
        predicted = logits.argmax(axis=1)
        for i in np.flatnonzero(predicted != labels):
            number, own, other = self._seen + int(i), int(labels[i]), int(predicted[i])
            self._found.append((float(chances[i]), number, own, other, _kept(examples[int(i)])))
        self._found = sorted(self._found, key=lambda each: each[:2])[:_MOST]
        self._seen += len(labels)

    def to_list(self) -> list[dict[str, Any]]:
        """Return JSON-ready values, the worst first.

        Returns:
            For each example `item`, its number; `true` and `predicted`, names; `probability` of the
            true class; `text`, or `image`, a PNG in base64 or None without Pillow.
        """
        return [
            {
                "item": number,
                "true": self._classes[own],
                "predicted": self._classes[other],
                "probability": chance,
                **({"text": found} if isinstance(found, str) else {"image": _png(found)}),
            }
            for chance, number, own, other, found in self._found
        ]


def _kept(example: Any) -> Any:
    """Return an example that does not keep its batch."""
    return example.copy() if isinstance(example, np.ndarray) else example


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
