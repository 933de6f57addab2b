# SPDX-License-Identifier: MIT
"""ImageModel: what the classifiers of images and of rows of numbers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import checks, nn, ops
from ...errors import ShapeError
from ...nn.layers import check_sizes
from ...nn.mode import in_mode
from ...ops.operands import need_float
from ...tensors import Tensor, tensor
from ..base import Model
from ..config import ModelConfig, check_labels

__all__ = ["ACTIVATIONS", "ClassifierConfig", "ImageModel", "check_widths", "make_activation"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh,
}  # fmt: skip


@dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """Fields and checks of the classifiers' configurations.

    Args:
        classes: number of classes; 1 is a number to predict.
        labels: their names; None leaves them numbers.
        mean: subtracted from each channel before all else; None subtracts nothing.
        std: each channel is divided by it after that; None divides by nothing.

    Raises:
        ValueError: labels are not as many as classes, or a deviation is not positive.
    """

    classes: int = 10
    labels: tuple[str, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def check(self, channels: int) -> None:
        """Check the fields, the sequences among which become tuples.

        Args:
            channels: how many numbers mean and std have.
        """
        who = type(self).__name__
        check_sizes(who, classes=self.classes)
        object.__setattr__(self, "labels", check_labels(who, self.labels, self.classes))
        if (self.mean is None) != (self.std is None):
            raise ValueError(f"{who}: give mean and std both, or neither")
        for name in ("mean", "std"):
            if getattr(self, name) is not None:
                self._check_numbers(name, channels, positive=name == "std")

    def _check_numbers(self, name: str, count: int, positive: bool = False) -> None:
        """Check a field of several numbers, which becomes a tuple.

        Args:
            name: of the field.
            count: how many it must have.
            positive: whether each must be above 0.
        """
        who, above = type(self).__name__, 0.0 if positive else None
        values = [
            checks.number(who, f"{name}[{i}]", x, above=above)
            for i, x in enumerate(checks.items(who, name, getattr(self, name), count))
        ]
        object.__setattr__(self, name, tuple(values))


class ImageModel(Model):
    """A classifier of images or rows of numbers, with one logit per class.

    Its file holds labels and normalisation beside the weights, so that what it says of an image
    needs nothing else.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._mean: Tensor | None = None
        self._gain: Tensor | None = None
        if config.mean is not None:
            shape = (1, -1, 1, 1)
            self._mean = tensor(config.mean).reshape(shape).detach()
            self._gain = tensor([1.0 / s for s in config.std]).reshape(shape).detach()

    def _normalised(self, x: Tensor) -> Tensor:
        """Images with the configured mean taken away and deviation divided by."""
        if self._mean is None or self._gain is None:
            return x
        return (x - self._mean) * self._gain

    def _check_images(self, x: Tensor, channels: int) -> Tensor:
        """Raise for what is not a batch of images."""
        who = type(self).__name__
        need_float(who, "x", x)
        if x.ndim != 4 or x.shape[1] != channels:
            raise ShapeError(
                f"{who}: x must be (B, C, H, W) with C={channels} channels; got {x.shape}"
            )
        return x

    def predict_proba(self, x: Tensor) -> Tensor:
        """Return the probability of each class, with nothing dropped and all statistics fixed.

        Args:
            x: what `forward` takes.

        Shape:
            x (B, C, H, W) -> (B, classes), rows that sum to 1

        Example:
            >>> model = CNN(CNNConfig(size=8, classes=3))
            >>> model.predict_proba(ones((2, 1, 8, 8))).shape
            (2, 3)
        """
        with in_mode(self, training=False):
            return ops.soft_max(self(x))


def make_activation(who: str, name: str) -> nn.Module:
    """Make an activation by its name."""
    return ACTIVATIONS[checks.choice(who, "activation", name, ACTIVATIONS)]()


def check_widths(who: str, name: str, widths: Sequence[int], least: int = 1) -> tuple[int, ...]:
    """Return a sequence of widths as a tuple; each must be an integer of at least one."""
    values = checks.items(who, name, widths)
    if len(values) < least:
        raise ValueError(f"{who}: {name} must have {least} or more widths; got {widths!r}")
    return check_sizes(who, **{f"{name}[{i}]": width for i, width in enumerate(values)})
