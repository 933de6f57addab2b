# SPDX-License-Identifier: MIT
"""Predictions of a model for many rows, computed in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...checks import flag, whole
from ...data import ArrayDataset, Dataset, Loader
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
        Numbers of a regression, (N,) or (N, outputs); the class of each row, (N,); 0 or 1 for each
        label, (N, labels).

    Raises:
        TypeError: an argument is of another kind.
        ValueError: there is no row, or no such task.

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
    step = TrainStep(model, None)
    parts = []
    for batch in _batches(who, data, size):
        outputs = step.logits(batch)[: getattr(batch, "rows", len(batch[0]))]
        parts.append(outputs if found is None else found.predict(outputs))
    result = np.concatenate(parts)
    names = getattr(getattr(model, "config", None), "labels", None)
    if named and names and found is not None and found.of_classes and result.ndim == 1:
        result = np.asarray(names)[result]
    return result


def _batches(who: str, data: Any, size: int) -> Iterator[Batch]:
    """Return the rows in order, in batches with targets that nobody reads."""
    if isinstance(data, Dataset) and not isinstance(data, np.ndarray):
        yield from Loader(data, min(size, len(data)), shuffle=False, pad_last=True).once()
        return
    rows = np.asarray(data)
    blank = np.zeros(len(rows) if rows.ndim else 1, np.int32)
    yield from Loader(ArrayDataset(rows, blank), size, shuffle=False, pad_last=True).once()
