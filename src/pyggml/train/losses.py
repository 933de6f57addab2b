# SPDX-License-Identifier: MIT
"""Losses that a training step minimises: a scalar mean, or a sum and the number of its targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import IGNORE_INDEX
from ..errors import ConfigError, shown
from ..models import LanguageModel, Model
from ..models.pooling import TextClassifier
from ..models.token_classifier import TokenClassifier
from ..nn import functional
from ..tensors import Tensor

__all__ = [
    "Count",
    "LossFunction",
    "class_loss",
    "count_distributions",
    "count_targets",
    "default_loss",
    "model_loss",
    "smoothed_loss",
]

# A number, a scalar tensor computed of the batch, or a function of the batch.
Count = int | Tensor | Callable[[Any], int]
LossFunction = Callable[..., Any]  # mean, (sum, count), or (sum, count, metrics)


def model_loss(model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> Any:
    """Return the loss of a model that has a method `loss`.

    Args:
        model: a model of pyggml.models, whose losses are summed and counted; or a module whose
            `loss(x, y, **inputs)` returns a mean or (sum, count).
        x: inputs, such as tokens.
        y: targets.
        inputs: further arguments of `model.loss`, such as positions and segments.
    """
    if isinstance(model, Model):
        return model.loss(x, y, reduction="sum", **inputs), count_targets  # type: ignore[attr-defined]
    return model.loss(x, y, **inputs)


def class_loss(model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> tuple[Tensor, Count]:
    """Return the summed cross-entropy of a classifier's logits, and its count.

    Args:
        model: gives logits, the classes last.
        x: inputs.
        y: classes, or `IGNORE_INDEX`; or a probability for each class, as mixup makes them.
        inputs: further arguments of the model.

    Shape:
        x any, y (...) or (..., V) of the logits (..., V) -> ()
    """
    loss = functional.cross_entropy(model(x, **inputs), y, reduction="sum")
    return loss, count_distributions


def default_loss(model: Any) -> LossFunction:
    """Return `model_loss` for a model with a method `loss`, or else `class_loss`."""
    return model_loss if hasattr(model, "loss") else class_loss


def smoothed_loss(model: Any, share: float) -> LossFunction:
    """Return the cross-entropy with label smoothing, which evaluations leave out.

    Args:
        model: a language model, or a classifier that gives logits.
        share: share of each target that is spread over all classes while the model trains.

    Raises:
        ConfigError: the model has a loss of its own.

    Example:
        >>> callable(smoothed_loss(model, 0.1))
        True
    """
    texts = isinstance(model, TextClassifier) and model.target_classes is not None
    if hasattr(model, "loss") and not (
        texts or isinstance(model, (LanguageModel, TokenClassifier))
    ):
        raise ConfigError(
            "Trainer: `label_smoothing` must be 0 for a model with a loss of its own; got "
            f"{share} for {type(model).__name__}: leave it out, or give a loss that smooths"
        )

    def loss(model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> tuple[Tensor, Count]:
        summed = functional.cross_entropy(
            model(x, **inputs),
            y,
            reduction="sum",
            label_smoothing=share if model.training else 0.0,
        )
        return summed, count_distributions

    return loss


def count_targets(batch: Any) -> int:
    """Return how many targets of a batch count.

    Whole numbers count where they are not `IGNORE_INDEX`; of decimal targets, each row counts.

    Args:
        batch: inputs and targets.
    """
    y = batch[1] if isinstance(batch, (tuple, list)) and len(batch) > 1 else None
    if not isinstance(y, np.ndarray):
        raise TypeError(f"count_targets: batch must be a pair of arrays (x, y); got {shown(batch)}")
    return len(y) if y.dtype.kind == "f" else int(np.count_nonzero(y != IGNORE_INDEX))


def count_distributions(batch: Any) -> int:
    """Return how many targets of a classifier's batch count: classes, or distributions over them.

    A distribution of zeros has no loss and does not count; an image that cannot be read has one.

    Args:
        batch: inputs and targets.
    """
    y = batch[1]
    if y.dtype.kind != "f" or y.ndim < 2:
        return count_targets(batch)
    return int(np.count_nonzero(y.any(axis=-1)))
