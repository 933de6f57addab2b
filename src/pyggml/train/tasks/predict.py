# SPDX-License-Identifier: MIT
"""Predictions of a model for many rows, computed in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backend.device import alone
from ...checks import array, flag, whole
from ...data import IGNORE_INDEX, ArrayDataset, Dataset, Loader
from ...errors import ShapeError, reason
from ...nn.weight_check import WeightCheck
from ..arguments import check_model
from ..step import Batch, TrainStep
from .kinds import find_task

__all__ = ["predict"]


def predict(
    model: Any,
    data: Any,
    *,
    task: str | None = None,
    batch_size: int = 256,
    labels: bool = True,
) -> np.ndarray:
    """Return what a model predicts for each row, computed in batches without gradients.

    Args:
        model: the model.
        data: rows as an array, or a dataset, whose targets are not used.
        task: a key of `TASKS`; None is the model's own, and without one the outputs are returned
            as they are.
        batch_size: rows per batch.
        labels: return the names of classes, where the model's configuration has them, and not
            their numbers.

    Returns:
        Numbers of a regression, (N,) or (N, outputs); the class of each row, (N,); the number of
        the class of each token, (N, T), filled up with `IGNORE_INDEX` where batches differ in
        length; 0 or 1 for each label, (N, labels).

    Raises:
        TypeError: an argument is of another kind.
        ShapeError: there is no row, or one of another width than the model takes.
        ValueError: a number is not finite, or there is no such task.
        RuntimeError: another thread changed the model's weights meanwhile.

    Example:
        >>> from pyggml.models import MLP, MLPConfig
        >>> predict(MLP(MLPConfig(inputs=3, classes=1)), np.ones((5, 3)), task="regression").shape
        (5,)
    """
    who = "predict"
    model = check_model(who, model)
    found = find_task(who, task, model)
    size = whole(who, "batch_size", batch_size, 1)
    named = flag(who, "labels", labels)
    step, weights = TrainStep(model, None), WeightCheck(who, model)
    parts = []
    for batch in _batches(who, data, size):
        with alone(), weights.unchanged():
            outputs = step.logits(batch)[: getattr(batch, "rows", len(batch[0]))]
        parts.append(outputs if found is None else found.predict(outputs))
    result = _joined(parts)
    names = getattr(getattr(model, "config", None), "labels", None)
    if named and names and found is not None and found.of_classes and result.ndim == 1:
        result = np.asarray(names)[result]
    return result


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return the batches' results as one; rows of classes are filled up to the longest."""
    widths = {part.shape[1] for part in parts if part.ndim == 2 and part.dtype.kind in "iu"}
    if len(widths) > 1:
        parts = [
            np.pad(part, ((0, 0), (0, max(widths) - part.shape[1])), constant_values=IGNORE_INDEX)
            for part in parts
        ]
    return np.concatenate(parts)


def _batches(who: str, data: Any, size: int) -> Iterator[Batch]:
    """Return the rows in order, in batches with targets that nobody reads."""
    if isinstance(data, Dataset) and not isinstance(data, np.ndarray):
        yield from Loader(data, min(size, len(data)), shuffle=False, pad_last=True).once()
        return
    rows = array(who, "data", data, kinds=None)
    if not rows.ndim or not rows.size:
        raise ShapeError(f"{who}: data must have at least one row; got shape {rows.shape}")
    try:
        dataset = ArrayDataset(rows, np.zeros(len(rows), np.int32))
    except ValueError as error:
        raise ValueError(f"{who}: data: {reason(error)}") from error
    yield from Loader(dataset, min(size, len(rows)), shuffle=False, pad_last=True).once()
