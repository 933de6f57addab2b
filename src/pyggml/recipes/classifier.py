# SPDX-License-Identifier: MIT
"""A trained classifier of images: it returns a probability for each class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import whole
from ..data import ResizedCenterCrop, read_image
from ..errors import FormatError, reason
from ..io import read_gguf
from ..models import ImageModel, load
from ..tensors import tensor

__all__ = ["ImageClassifier"]


class ImageClassifier:
    """Classifies images with a trained model.

    Args:
        model: the classifier.
        size: of its images, one number or (rows, columns).
        channels: 1 for grey, 3 for colour.

    Attributes:
        classes: names of the classes.

    Raises:
        ValueError: the model takes images of another size.

    Example:
        >>> from PIL import Image
        >>> Image.new("L", (20, 30)).save("black.png")
        >>> sizes = {"channels": 1, "size": (8, 8), "widths": (4,), "classes": 3}
        >>> classify = ImageClassifier(pg.models.build("cnn", sizes), size=8, channels=1)
        >>> shares = classify("black.png")
        >>> sorted(shares), round(sum(shares.values()), 4)
        (['0', '1', '2'], 1.0)
    """

    def __init__(self, model: ImageModel, size: int | tuple[int, int], channels: int) -> None:
        if not isinstance(model, ImageModel):
            raise TypeError(
                f"ImageClassifier: model must be an ImageModel; got {type(model).__name__}"
            )
        self.model = model
        model.eval()
        both = size if isinstance(size, tuple) and len(size) == 2 else (size, size)
        rows, columns = (whole("ImageClassifier", "size", n, 1) for n in both)
        self.size = rows, columns
        self.channels = whole("ImageClassifier", "channels", channels, 1)
        labels = model.config.labels
        self.classes = list(labels or map(str, range(model.config.classes)))
        try:
            self._probabilities(np.zeros((*self.size, channels), np.float32))
        except ValueError as error:
            raise ValueError(
                f"ImageClassifier: size must be one that the model takes; got {size}: "
                + reason(error)
            ) from error

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], size: int | tuple[int, int] | None = None
    ) -> ImageClassifier:
        """Read the model that `pyggml train-image` wrote.

        Args:
            path: a GGUF file, or the folder of a run.
            size: to bring images to, one number or (rows, columns); None is that of the training,
                which the file tells if train-image wrote it or the model takes no other.

        Raises:
            FileNotFoundError: there is no such file.
            FormatError: the file is damaged, or holds a model of another kind.
            ValueError: the model takes no images of this size.
        """
        model, _ = load(path)
        file = Path(path, "model.gguf") if Path(path).is_dir() else Path(path)
        if not isinstance(model, ImageModel):
            cure = "use pyggml generate" if hasattr(model, "new_cache") else "give another file"
            raise FormatError(
                f"{file}: general.architecture must be that of a classifier of images, mlp, cnn or"
                f" resnet; got {model.arch!r}: {cure}"
            )
        with read_gguf(file) as opened:
            metadata = opened.metadata
        key = "pyggml.image.channels"
        channels = _read_whole(file, key, metadata.get(key, getattr(model.config, "channels", 1)))
        if channels not in (1, 3):
            raise FormatError(f"{file}: {key} must be 1 or 3; got {channels}")
        if size is None:
            key = "pyggml.image.size"
            size = getattr(model.config, "size", None)
            if key in metadata:
                size = _read_whole(file, key, metadata[key])
            elif size is None:
                raise FormatError(
                    f"{file}: {key} is not there, and a {type(model).__name__} takes images of"
                    " several sizes: give the `size` of its training"
                )
        return cls(model, size, channels)

    def __call__(self, path: str | os.PathLike[str]) -> dict[str, float]:
        """Return the probability of each class of an image.

        Args:
            path: its file, of any size and mode.

        Returns:
            The probability of each class, the likeliest first.

        Raises:
            FormatError: the file is missing or cannot be read.
        """
        image = ResizedCenterCrop(self.size)(read_image(path, self.channels))
        shares = self._probabilities(image)
        order = np.argsort(-shares, kind="stable")
        return {self.classes[i]: float(shares[i]) for i in order}

    def _probabilities(self, image: np.ndarray) -> np.ndarray:
        x = np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)
        shares: np.ndarray = self.model.predict_proba(tensor(x, device=self.model.device)).numpy()
        return shares[0]  # type: ignore[no-any-return]


def _read_whole(file: Path, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 4096:
        raise FormatError(f"{file}: {key} must be a whole number from 1 to 4096; got {value!r}")
    return value
