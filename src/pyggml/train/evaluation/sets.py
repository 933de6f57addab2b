# SPDX-License-Identifier: MIT
"""What a trainer evaluates on: read, and refused before the training where it cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data import Dataset, Documents, Loader, PackedDataset
from ...models import LanguageModel
from ..batches import Batch
from ..metrics.records import EvalMetrics
from ..step import TrainStep
from .evaluate import check_score, eval_batches, evaluate, evenly, parse_score

if TYPE_CHECKING:
    from ..config import TrainConfig
    from ..trainer import Trainer

__all__ = [
    "check_no_sets",
    "check_scores",
    "check_set",
    "evaluate_sets",
    "read_sets",
    "set_batches",
]


class _Rows(Loader):
    """A dataset as it is evaluated on: in order, all of it, the last batch filled up."""


def read_sets(validation: Any, loader: Any) -> dict[str, Any]:
    """Tokens, datasets and loaders to evaluate on, by name.

    Args:
        validation: tokens, a dataset with `ids`, `Documents` or another dataset, a loader with
            `once()`, several of these by name, or None.
        loader: of the training. Its `seq_len` is what tokens and documents are cut by; where it
            packs documents, a `TokenStore` is evaluated by documents, too.

    Returns:
        What `set_batches` takes, by name.

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


def _read(name: str, given: Any, loader: Any) -> Any:
    """A loader as it is, tokens as an array, and all else with a loader of its own."""
    if callable(getattr(given, "once", None)):
        return given
    data: Any = getattr(loader, "dataset", None)
    own = getattr(given, "documents", None)
    if isinstance(own, Documents) and hasattr(given, "ids") and hasattr(data, "documents"):
        given = own
    is_rows = isinstance(given, Dataset) and not hasattr(given, "ids")
    if not is_rows and not hasattr(data, "seq_len"):
        raise ValueError(
            f"Trainer: the training data tell no seq_len to cut validation set {name!r} by; "
            f"got {type(given).__name__}: give a Loader"
        )
    if not is_rows and not isinstance(given, Documents):
        return _tokens(name, given)
    try:
        # Documents by themselves, as packed training data have them.
        rows: Any = given if is_rows else PackedDataset(given, data.seq_len)
        batch_size = getattr(loader, "batch_size", len(rows))
        return _Rows(rows, min(batch_size, len(rows)), shuffle=False, pad_last=True)
    except ValueError as error:
        raise ValueError(f"Trainer: validation set {name!r}: {error}") from error


def _tokens(name: str, given: Any) -> np.ndarray:
    """The tokens of a stream."""
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


def set_batches(of: Any, loader: Any, most: int | None = None) -> Iterator[Batch]:
    """The batches of a set; those of a loader come as it gives them.

    Args:
        of: from `read_sets`.
        loader: of the training.
        most: how many batches; of tokens and datasets, evenly spread. None reads all.
    """
    if isinstance(of, _Rows):
        return evenly(of, most)
    if isinstance(of, np.ndarray):
        return eval_batches(of, loader.dataset.seq_len, loader.batch_size, most)
    return islice(of.once(), most)


def check_set(name: str, of: Any, loader: Any, step: TrainStep, scores: tuple[str, ...]) -> None:
    """Refuse a set that could not be evaluated, by its first batch and the graph for it.

    Args:
        name: of the set.
        of: the set, of which all tokens are looked at where they are in memory.
        loader: of the training.
        step: evaluates them; the graphs that it records are kept.
        scores: what is to be computed besides the loss.

    Raises:
        ValueError: there is no batch, or it does not suit the model or a score.
    """
    where = f"Trainer: validation set {name!r}"
    vocab_size = step.model.config.vocab_size if isinstance(step.model, LanguageModel) else None
    in_memory = isinstance(of, np.ndarray) and not isinstance(of, np.memmap)
    if in_memory and vocab_size is not None and not 0 <= of.min() <= of.max() < vocab_size:
        raise ValueError(
            f"{where}: every token must be from 0 to {vocab_size - 1}; got {of.min()} to "
            f"{of.max()}: use the model's own tokenizer"
        )
    first = next(set_batches(of, loader, 1), None)
    if first is None:
        raise ValueError(f"{where} must have at least one batch; got none")
    try:
        first = step.check(first)
        step.record(first, gradients=False)
        if scores:
            shape = step.record_logits(first)
            for score in scores:
                check_score(score, parse_score(score), shape, first[1])
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{where}: {error}") from error


def check_scores(model: Any, scores: tuple[str, ...]) -> None:
    """Refuse what says nothing of a language model; other models' classes show with a batch.

    Args:
        model: the model.
        scores: what evaluations are to compute besides the loss.

    Raises:
        ValueError: names the score.
    """
    if isinstance(model, LanguageModel):
        for score in scores:
            shape = (1, 1, model.config.vocab_size)
            check_score(score, parse_score(score), shape, np.zeros((1, 1), np.int32))


def check_no_sets(config: TrainConfig, falls: bool) -> None:
    """Refuse what would wait for an evaluation that never comes.

    Args:
        config: of a run without validation sets.
        falls: whether its rate falls with the validation loss.

    Raises:
        ValueError: names the option.
    """
    asked = {"patience": config.patience, "scores": config.scores, "schedule plateau": falls}
    for name, given in asked.items():
        if given:
            raise ValueError(
                f"Trainer: {name} needs a validation set; got none: give `validation`, or leave "
                "it out"
            )


def evaluate_sets(trainer: Trainer, stop: Callable[[], bool]) -> list[EvalMetrics] | None:
    """What is measured on every set of a trainer; None when it was stopped.

    Args:
        trainer: with its model as it is to be evaluated.
        stop: asked before each batch.
    """
    config, found = trainer.config, list[EvalMetrics]()
    for name, of in trainer._sets.items():
        metrics = evaluate(
            trainer.model,
            set_batches(of, trainer.loader, config.eval_batches),
            trainer._train_step,
            trainer.step,
            stop,
            config.scores,
            trainer.token_bytes,
            name,
        )
        if metrics is None:
            return None
        found.append(metrics)
    return found
