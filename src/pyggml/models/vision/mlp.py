# SPDX-License-Identifier: MIT
"""MLP: the multilayer perceptron, for rows of numbers and small images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ... import checks, nn, ops
from ...data import ArrayDataset
from ...data.arrays import TABLE_TASKS
from ...data.variety import check_guess
from ...errors import ShapeError
from ...io import GGUFFile
from ...nn import init
from ...nn.layers import check_sizes
from ...ops.operands import need_float, need_tensor
from ...tensors import Tensor, tensor
from ...tensors.create import check_room
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
        task: "classification", "regression" or "multi_label", which the trainer, `predict` and
            the file know; None leaves it to them.
        target_mean: added to each output of a regression, after
        target_std: which multiplies it: the layers learn standardised targets, and the model
            returns numbers in their own unit.

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
    task: str | None = None
    target_mean: tuple[float, ...] | None = None
    target_std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        self.check_kinds()
        check_sizes("MLPConfig", inputs=self.inputs)
        object.__setattr__(self, "hidden", check_widths("MLPConfig", "hidden", self.hidden, 0))
        for name in ("mean", "std"):
            given = getattr(self, name)
            if isinstance(given, (int, float)) or getattr(given, "ndim", 1) == 0:
                given = (given,)
            if isinstance(given, (list, tuple, np.ndarray)) and len(given) == 1:
                check_room("MLPConfig", self.inputs)
                object.__setattr__(self, name, tuple(given) * self.inputs)
        self.check(self.inputs)
        make_activation("MLPConfig", self.activation)
        checks.choice("MLPConfig", "norm", self.norm, ("batch", "none"))
        if self.task is not None:
            checks.choice("MLPConfig", "task", self.task, TABLE_TASKS)
        if (self.target_mean is None) != (self.target_std is None):
            raise ValueError("MLPConfig: give target_mean and target_std both, or neither")
        if self.target_mean is not None and self.task != "regression":
            raise ValueError(f"MLPConfig: target_mean needs task='regression'; got {self.task!r}")
        for name in ("target_mean", "target_std"):
            if getattr(self, name) is not None:
                self._check_numbers(name, self.classes, positive=name == "target_std")
        nn.Dropout(self.dropout)

    @classmethod
    def of(cls, data: ArrayDataset, **sizes: Any) -> MLPConfig:
        """Return a configuration for a table: standardised inputs, outputs and task of its targets.

        Args:
            data: rows to train on, which mean and deviation are taken of.
            sizes: further fields, such as `hidden`.

        Raises:
            TypeError: data is no `ArrayDataset`.
            ValueError: its task was not given, and decimal targets look like classes.

        Example:
            >>> rows = pg.data.ArrayDataset([[1.0, 5.0], [3.0, 9.0]], [10.0, 30.0])
            >>> config = MLPConfig.of(rows, hidden=(8,))
            >>> config.task, config.mean, config.target_std
            ('regression', (2.0, 7.0), (10.0,))
        """
        checks.instance("MLPConfig.of", "data", data, ArrayDataset)
        if "task" not in sizes:
            check_guess("MLPConfig.of", data)
        mean, std = _statistics(data.x)
        found: dict[str, Any] = {"task": data.task, "mean": mean, "std": std, "labels": data.labels}
        found["inputs"] = len(mean)
        if data.task == "regression":
            found["target_mean"], found["target_std"] = _statistics(data.y)
        found["classes"] = data.outputs
        return cls.from_dict({**found, **sizes})


def _statistics(rows: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each column; a constant one is divided by 1."""
    columns = np.asarray(rows, np.float64).reshape(len(rows), -1)
    mean, std = columns.mean(axis=0), columns.std(axis=0)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


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
        self.target_gain: Tensor | None = None  # by which the loss standardises errors
        self._target_mean: Tensor | None = None
        self._target_std: Tensor | None = None
        if config.target_mean is not None and config.target_std is not None:
            self._target_mean = tensor([config.target_mean]).detach()
            self._target_std = tensor([config.target_std]).detach()
            self.target_gain = tensor([[1.0 / s for s in config.target_std]]).detach()

    @property
    def task(self) -> str | None:
        """The task that the outputs are of, or None."""
        task: str | None = self.config.task
        return task

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        step = 2 + (config.norm == "batch") + (config.dropout > 0)
        widths = (config.inputs, *config.hidden, config.classes)
        for i, (width, wide) in enumerate(pairwise(widths)):
            check_tensor(file, f"layers.{i * step}.weight", (wide, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a logit per class, or numbers in the unit of the targets."""
        inputs = self.config.inputs
        if need_tensor("MLP", "x", x).dtype.name == "i32":  # columns of whole numbers
            x = ops.cast(x, "f32")
        need_float("MLP", "x", x)
        if x.ndim < 2 or math.prod(x.shape[1:]) != inputs:
            raise ShapeError(
                f"MLP: x must be (B, ...) with {inputs} numbers in each row; got {x.shape}"
            )
        rows = self._normalised(x.reshape(x.shape[0], inputs, 1, 1))
        y: Tensor = self.layers(rows.reshape(x.shape[0], inputs))
        if self._target_mean is None or self._target_std is None:
            return y
        return y * self._target_std + self._target_mean
