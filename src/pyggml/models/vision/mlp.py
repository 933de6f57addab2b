# SPDX-License-Identifier: MIT
"""MLP: the multilayer perceptron, for rows of numbers and small images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ... import checks, nn
from ...errors import ShapeError
from ...io import GGUFFile
from ...nn import init
from ...nn.layers import check_sizes
from ...ops.operands import need_float
from ...tensors import Tensor
from ..files import check_tensor
from .image import ClassifierConfig, ImageModel, check_widths, make_activation

__all__ = ["MLP", "MLPConfig"]


@dataclass(frozen=True)
class MLPConfig(ClassifierConfig):
    """Sizes of an MLP.

    Args:
        inputs: numbers of a row, or of an image in all its channels.
        hidden: widths of the layers between; () is a linear model.
        activation: between layers: "relu", "gelu", "silu" or "tanh".
        dropout: share dropped after each activation while training.
        norm: "batch" normalises each layer before its activation, or "none".
        classes: number of classes; 1 is a number to predict.
        labels: their names; None leaves them numbers.
        mean: subtracted from each input first; None subtracts nothing. One number, or one each.
        std: each input is divided by it after that.

    Raises:
        ValueError: a size, activation, norm or share is out of range.

    Example:
        >>> MLPConfig(inputs=4, hidden=(16, 16), classes=3).hidden
        (16, 16)
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"inputs": 64, "hidden": (32,), "classes": 10},
        "digits": {"inputs": 64, "hidden": (128, 64), "classes": 10},
        "mnist": {"inputs": 784, "hidden": (300, 100), "classes": 10, "dropout": 0.2},
    }

    inputs: int = 784
    hidden: tuple[int, ...] = (128, 64)
    activation: str = "relu"
    dropout: float = 0.0
    norm: str = "none"

    def __post_init__(self) -> None:
        self.check_kinds()
        check_sizes("MLPConfig", inputs=self.inputs)
        object.__setattr__(self, "hidden", check_widths("MLPConfig", "hidden", self.hidden, 0))
        for name in ("mean", "std"):
            given = getattr(self, name)
            if isinstance(given, (int, float)):
                given = (given,)
            if isinstance(given, (list, tuple, np.ndarray)) and len(given) == 1:
                object.__setattr__(self, name, tuple(given) * self.inputs)
        self.check(self.inputs)
        make_activation("MLPConfig", self.activation)
        checks.choice("MLPConfig", "norm", self.norm, ("batch", "none"))
        nn.Dropout(self.dropout)


class MLP(ImageModel):
    """Linear layers with activations between; `layers` is a Sequential, named as PyTorch's.

    Args:
        config: sizes.

    Shape:
        x (B, inputs) or (B, ...) with as many numbers in each -> (B, classes)

    Source: Rumelhart et al. 1986.

    Example:
        >>> MLP(MLPConfig(inputs=64, classes=10))(ones((2, 1, 8, 8))).shape
        (2, 10)
    """

    arch = "mlp"
    config_class = MLPConfig

    def __init__(self, config: MLPConfig) -> None:
        super().__init__(config)
        layers: list[nn.Module] = []
        width = config.inputs
        for wide in config.hidden:
            # A norm takes any bias away again: the layer before it learns none.
            bias = config.norm == "none"
            layers.append(nn.Linear(width, wide, bias, init.kaiming_uniform()))
            if config.norm == "batch":
                layers.append(nn.BatchNorm1d(wide))
            layers.append(make_activation("MLP", config.activation))
            if config.dropout:
                layers.append(nn.Dropout(config.dropout))
            width = wide
        layers.append(nn.Linear(width, config.classes))
        self.layers = nn.Sequential(*layers)

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        step = 2 + (config.norm == "batch") + (config.dropout > 0)
        widths = (config.inputs, *config.hidden, config.classes)
        for i, (width, wide) in enumerate(pairwise(widths)):
            check_tensor(file, f"layers.{i * step}.weight", (wide, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit per class."""
        inputs = self.config.inputs
        need_float("MLP", "x", x)
        if x.ndim < 2 or math.prod(x.shape[1:]) != inputs:
            raise ShapeError(
                f"MLP: x must be (B, ...) with {inputs} numbers in each row; got {x.shape}"
            )
        rows = self._normalised(x.reshape(x.shape[0], inputs, 1, 1))
        y: Tensor = self.layers(rows.reshape(x.shape[0], inputs))
        return y
