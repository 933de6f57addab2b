# SPDX-License-Identifier: MIT
"""Validation sets: read from tokens, datasets and loaders, and checked before the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from ...data import Dataset, Documents, Loader, PackedDataset, TokenDataset
from ...data.arrays import as_dataset
from ...errors import ConfigError, shown
from ...models import LanguageModel
from ..batches import Batch
from ..step import TrainStep
from ..tasks import Metric, Task
from .evaluate import check_metric, evenly

__all__ = ["ValidationSet", "check_labels", "check_metrics", "read_sets"]


class ValidationSet:
    """Data to evaluate on, by batches.

    Args:
        name: name of the set.
        loader: has `once()`, which goes through the batches.
        spread: take evenly spread batches where not all are evaluated, and not the first ones.
        ids: tokens of the set where they are in memory, whose range is checked.

    Attributes:
        loader: the loader.
    """

    def __init__(self, name: str, loader: Any, spread: bool = True, ids: np.ndarray | None = None):
        self.name, self.loader = name, loader
        self._spread, self._ids = spread, ids

    def batches(self, most: int | None = None) -> Iterator[Batch]:
        """Return the batches of the set.

        Args:
            most: largest number of batches; None takes all.
        """
        return evenly(self.loader, most) if self._spread else islice(self.loader.once(), most)

    def check(self, step: TrainStep, metrics: Mapping[str, Metric], task: Task) -> None:
        """Raise if the set cannot be evaluated, by its first batch and the graph for it.

        Args:
            step: evaluates the set; the graphs that it records are kept.
            metrics: computed besides the loss, by name.
            task: what the outputs are.

        Raises:
            ValueError: there is no batch, or it does not suit the model.
            TypeError: the loss function returns something of another kind.
            ConfigError: it does not suit a metric.
        """
        where, model = f"Trainer: validation set {self.name!r}", step.model
        ids, count = self._ids, model.config.vocab_size if isinstance(model, LanguageModel) else 0
        if ids is not None and count and not 0 <= ids.min() <= ids.max() < count:
            raise ValueError(
                f"{where}: every token must be from 0 to {count - 1}; got {ids.min()} to "
                f"{ids.max()}: use the model's own tokenizer"
            )
        first = next(self.batches(1), None)
        if first is None:
            raise ValueError(f"{where} must have at least one batch; got none")
        try:
            first = step.check(first)
            step.record(first, gradients=False)
            if metrics:
                shape = step.record_logits(first)
                for metric, rule in metrics.items():
                    check_metric(metric, rule, shape, first[1], task)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        except (ValueError, TypeError, IndexError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{where}: {error}") from error


def read_sets(validation: Any, loader: Any) -> dict[str, ValidationSet]:
    """Return validation sets by name.

    Args:
        validation: tokens, a dataset, a pair of arrays, `Documents`, a loader with `once()`,
            several of these by name, or None.
        loader: loader of the training. Its `seq_len` cuts tokens and documents; where it packs
            documents, a `TokenStore` is evaluated by documents, too.

    Raises:
        ValueError: a name is not text or is `train`, or a set can be none of these.
    """
    if validation is None:
        return {}
    sets = validation if isinstance(validation, Mapping) else {"validation": validation}
    for name in sets:
        if not isinstance(name, str) or not name or name == "train":
            raise ValueError(
                f"Trainer: a validation set's name must be text, and not train; got {name!r}"
            )
    return {name: _read(name, each, loader) for name, each in sets.items()}


def _read(name: str, given: Any, loader: Any) -> ValidationSet:
    """Return a set; all but loaders get a loader that reads every row in order."""
    data: Any = getattr(loader, "dataset", None)
    given = as_dataset(given, data)
    _check_names(name, given, loader)
    if callable(getattr(given, "once", None)):
        return ValidationSet(name, given, spread=False)
    own = getattr(given, "documents", None)
    if isinstance(own, Documents) and hasattr(given, "ids") and hasattr(data, "documents"):
        given = own
    is_rows = isinstance(given, Dataset) and not hasattr(given, "ids")
    is_tokens = isinstance(given, (Dataset, Documents, np.ndarray, list, tuple))
    if not is_tokens and not hasattr(given, "ids"):
        raise TypeError(
            f"Trainer: validation set {name!r} must be tokens, a dataset or a loader with once(); "
            f"got {type(given).__name__}"
        )
    if not is_rows and not hasattr(data, "seq_len"):
        raise ValueError(
            f"Trainer: the training data tell no seq_len to cut validation set {name!r} by; "
            f"got {type(given).__name__}: give a Loader"
        )
    ids = None if is_rows or isinstance(given, Documents) else _tokens(name, given)
    try:
        rows = given
        if ids is not None:
            rows = TokenDataset(ids, data.seq_len, keep_tail=True)
        elif not is_rows:  # documents by themselves, as packed training data have them
            rows = PackedDataset(given, data.seq_len)
        size = min(getattr(loader, "batch_size", len(rows)), len(rows))
        made = Loader(rows, size, shuffle=False, pad_last=True)
    except ValueError as error:
        raise ValueError(f"Trainer: validation set {name!r}: {error}") from error
    return ValidationSet(name, made, ids=None if isinstance(ids, np.memmap) else ids)


def _check_names(name: str, given: Any, loader: Any) -> None:
    """Raise on rows whose classes have other numbers than those of the training data."""
    train, own = (_names(getattr(each, "dataset", each)) for each in (loader, given))
    if own is None:
        return
    if train is None:
        train = tuple(map(str, range(len(own))))
    if own != train[: len(own)]:
        raise ValueError(
            f"Trainer: validation set {name!r} must number its classes as train does,"
            f" {shown(train)}; got {shown(own)}: make it with labels=train.labels, a dataset of"
            " texts with names=train.names, or split one dataset"
        )


def _names(data: Any) -> tuple[str, ...] | None:
    """Return the names of a dataset's classes, in the order of their numbers, if it has names."""
    found = data.names if hasattr(data, "names") else getattr(data, "labels", None)
    is_names = isinstance(found, (list, tuple)) and all(isinstance(n, str) for n in found)
    return tuple(found) if found is not None and is_names else None


def check_labels(model: Any, loader: Any) -> None:
    """Raise on training data whose classes have other numbers than the labels of the model.

    Raises:
        ValueError: the model would give names of other classes.
    """
    own = _names(getattr(model, "config", None))
    train = _names(getattr(loader, "dataset", loader))
    if own is not None and train is not None and train != own[: len(train)]:
        raise ValueError(
            f"Trainer: train must number its classes as the model's labels do, {shown(own)}; got"
            f" {shown(train)}: make it with labels=model.config.labels, or names=… of texts"
        )


def _tokens(name: str, given: Any) -> np.ndarray:
    """Return the tokens of a stream."""
    ids: Any = getattr(given, "ids", given)
    try:
        array: np.ndarray = np.asanyarray(ids)  # a memmap stays one
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"Trainer: validation set {name!r} holds no tokens: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"Trainer: validation set {name!r} must be token ids in one dimension, a dataset or a "
            f"loader with once(); got {type(given).__name__} of shape {array.shape}, dtype "
            f"{array.dtype}"
        )
    if array.size < 2:
        raise ValueError(
            f"Trainer: validation set {name!r} must hold at least 2 tokens; got {array.size}"
        )
    return array


def check_metrics(model: Any, metrics: Mapping[str, Metric], task: Task) -> None:
    """Raise for a metric that does not suit a language model; a batch checks other models later.

    Args:
        model: the model.
        metrics: the metrics by name.
        task: what the outputs are.

    Raises:
        ValueError: names the metric.
    """
    if isinstance(model, LanguageModel):
        for metric, rule in metrics.items():
            shape = (1, 1, model.config.vocab_size)
            check_metric(metric, rule, shape, np.zeros((1, 1), np.int32), task)
