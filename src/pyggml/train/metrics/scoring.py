# SPDX-License-Identifier: MIT
"""Metrics of predictions: accuracy, top-k, F1, bits per byte."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...checks import array, choice, number, whole
from ...data import IGNORE_INDEX
from ...errors import ShapeError, shown
from ...nn import Module

__all__ = [
    "accuracy",
    "bits_per_byte",
    "confusion_matrix",
    "f1_score",
    "label_f1_score",
    "subset_accuracy",
    "token_bytes",
    "top_k_accuracy",
]

# The matrix then takes 800 MB.
_CLASSES_MAX = 10_000
# llama.cpp's token types of what stands for no text, and for one byte.
_CONTROL, _BYTE = 3, 6


def _numbers(who: str, name: str, value: ArrayLike) -> np.ndarray:
    """Predictions, labels or logits as an array."""
    return np.asarray(array(who, name, value, kinds="iufb"))


def _counted(who: str, predicted: np.ndarray, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and targets of what counts, one row for each."""
    wanted = np.asarray(array(who, "targets", targets, kinds=None))
    if not np.issubdtype(wanted.dtype, np.integer):
        raise ValueError(f"{who}: targets must be whole numbers of classes; got {wanted.dtype}")
    if predicted.shape[: wanted.ndim] != wanted.shape:
        raise ShapeError(
            f"{who}: predictions must have the targets' shape {wanted.shape} in front; "
            f"got {predicted.shape}"
        )
    kept = wanted != IGNORE_INDEX
    if not kept.any():
        raise ValueError(f"{who}: at least one target must count; got none")
    return predicted[kept], wanted[kept]


def accuracy(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the share of predictions that are right.

    Args:
        predicted: classes, or logits with the classes last.
        targets: classes; -100 is not counted.

    Shape:
        predicted (...) or (..., V), targets (...) -> float

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: no target counts.

    Example:
        >>> accuracy([[0.1, 0.9], [0.8, 0.2]], [1, 1])
        0.5
    """
    found = _numbers("accuracy", "predicted", predicted)
    if found.ndim > array("accuracy", "targets", targets, kinds=None).ndim:
        return top_k_accuracy(found, targets, 1)
    chosen, wanted = _counted("accuracy", found, targets)
    return float(np.mean(chosen == wanted))


def top_k_accuracy(logits: ArrayLike, targets: ArrayLike, k: int = 5) -> float:
    """Return the share of targets among the k classes with the highest logits.

    A class counts as found when fewer than k others have a higher logit.

    Args:
        logits: with the classes last.
        targets: classes; -100 is not counted.
        k: how many guesses, >= 1.

    Shape:
        logits (..., V), targets (...) -> float

    Raises:
        ShapeError: the shapes do not fit.
        TypeError: k is not a whole number.
        ValueError: no target counts, one is no class, or k is below 1.

    Example:
        >>> top_k_accuracy([[0.1, 0.9, 0.3], [0.8, 0.2, 0.1]], [2, 2], k=2)
        0.5
    """
    k = whole("top_k_accuracy", "k", k, 1)
    values = _numbers("top_k_accuracy", "logits", logits)
    shape = array("top_k_accuracy", "targets", targets, kinds=None).shape
    if values.ndim != len(shape) + 1:
        raise ShapeError(
            f"top_k_accuracy: logits must be (..., V) for targets {shape}; got {values.shape}"
        )
    rows, wanted = _counted("top_k_accuracy", values, targets)
    if wanted.min() < 0 or wanted.max() >= rows.shape[-1]:
        raise ValueError(
            f"top_k_accuracy: every target must be a class from 0 to {rows.shape[-1] - 1}; "
            f"got {wanted.min()} to {wanted.max()}"
        )
    own = np.take_along_axis(rows, wanted[:, None], axis=-1)
    # A tie is a miss, and so is NaN, which is not less than anything: who knows nothing scores 0.
    rivals = (~(rows < own)).sum(axis=-1) - 1
    return float(np.mean(rivals < k))


def confusion_matrix(
    predicted: ArrayLike, targets: ArrayLike, classes: int | None = None
) -> np.ndarray:
    """Count how often each class was predicted for each.

    Args:
        predicted: classes.
        targets: classes; -100 is not counted.
        classes: how many there are, C; None takes the highest number that occurs.

    Shape:
        predicted (...), targets (...) -> (C, C): rows are targets, columns predictions

    Raises:
        ShapeError: the shapes differ.
        TypeError: classes is no whole number.
        ValueError: no target counts, or a class is out of range.

    Example:
        >>> confusion_matrix([0, 1, 1], [0, 0, 1]).tolist()
        [[1, 1], [0, 1]]
    """
    found = _numbers("confusion_matrix", "predicted", predicted)
    chosen, wanted = _counted("confusion_matrix", found, targets)
    if chosen.ndim != 1:
        raise ShapeError(
            f"confusion_matrix: predicted must have the targets' shape; got {chosen.ndim - 1} axes "
            "more; take argmax of logits"
        )
    if not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(
            f"confusion_matrix: predicted must be whole numbers of classes; got {chosen.dtype}"
        )
    highest = int(max(chosen.max(), wanted.max()))
    count = highest + 1 if classes is None else whole("confusion_matrix", "classes", classes, 1)
    if count > _CLASSES_MAX:
        raise ValueError(
            f"confusion_matrix: a matrix of {count} classes would be too large; at most "
            f"{_CLASSES_MAX}"
        )
    lowest = int(min(chosen.min(), wanted.min()))
    if lowest < 0 or highest >= count:
        raise ValueError(
            f"confusion_matrix: classes must be from 0 to {count - 1}; got {lowest} to {highest}"
        )
    flat = np.bincount(wanted.astype(np.int64) * count + chosen, minlength=count * count)
    return flat.reshape(count, count)


def f1_score(
    predicted: ArrayLike, targets: ArrayLike, average: str = "macro", classes: int | None = None
) -> float:
    """Return the harmonic mean of precision and recall.

    Args:
        predicted: classes.
        targets: classes; -100 is not counted.
        average: "macro" is the mean over classes that occur, "weighted" the mean over targets,
            "micro" counts all classes together, "binary" is the score of class 1.
        classes: how many there are; None takes the highest number that occurs.

    Shape:
        predicted (...), targets (...) -> float

    Raises:
        ShapeError: the shapes differ.
        TypeError: an argument is of a wrong kind.
        ValueError: an unknown average, or as `confusion_matrix`.

    Source: van Rijsbergen 1979, "Information Retrieval"; the averages are scikit-learn's.

    Example:
        >>> round(f1_score([0, 1, 1], [0, 0, 1]), 4)
        0.6667
    """
    choice("f1_score", "average", average, ("macro", "weighted", "micro", "binary"))
    if average == "binary":
        classes = max(2, classes or 2)
    table = confusion_matrix(predicted, targets, classes)
    if average == "micro":
        return float(np.trace(table) / table.sum())
    hits, given, taken = np.diag(table), table.sum(axis=1), table.sum(axis=0)
    each = 2 * hits / np.maximum(given + taken, 1)
    if average == "binary":
        return float(each[1])
    if average == "weighted":
        return float(np.average(each, weights=given))
    return float(each[given + taken > 0].mean())


def _label_rows(who: str, predicted: ArrayLike, targets: ArrayLike) -> list[np.ndarray]:
    """Return labels as rows of truth values; a prediction that is NaN is the wrong one."""
    found, wanted = _numbers(who, "predicted", predicted), _numbers(who, "targets", targets)
    if found.shape != wanted.shape or wanted.ndim != 2 or not wanted.size:
        raise ShapeError(
            f"{who}: predictions and targets must be (N, labels); got {found.shape} and "
            f"{wanted.shape}"
        )
    if np.isnan(wanted).any():
        raise ValueError(f"{who}: targets must be 0 or 1; got NaN")
    return [np.where(np.isnan(found), wanted <= 0.5, found > 0.5), wanted > 0.5]


def subset_accuracy(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the share of rows whose labels are all right.

    Args:
        predicted: 1 for each label that a row has, or its probability; NaN is wrong.
        targets: 1 for each label that a row has.

    Shape:
        predicted, targets (N, labels) -> float

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: a target is NaN.

    Source: scikit-learn's accuracy_score of several labels.

    Example:
        >>> subset_accuracy([[1, 0], [1, 1]], [[1, 0], [0, 1]])
        0.5
    """
    found, wanted = _label_rows("subset_accuracy", predicted, targets)
    return float((found == wanted).all(axis=1).mean())


def label_f1_score(predicted: ArrayLike, targets: ArrayLike, average: str = "macro") -> float:
    """Return the harmonic mean of precision and recall of several labels.

    Args:
        predicted: 1 for each label that a row has, or its probability; NaN is wrong.
        targets: 1 for each label that a row has.
        average: "macro" is the mean over labels, "weighted" that over labels as often as they
            occur, "micro" counts all labels together.

    Shape:
        predicted, targets (N, labels) -> float

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: an unknown average, or a target is NaN.

    Source: scikit-learn's f1_score of several labels; a label that nobody has or gets scores 0.

    Example:
        >>> round(label_f1_score([[1, 0], [1, 1]], [[1, 0], [0, 1]]), 4)
        0.8333
    """
    choice("label_f1_score", "average", average, ("macro", "weighted", "micro"))
    found, wanted = _label_rows("label_f1_score", predicted, targets)
    hits, given, taken = ((part).sum(axis=0) for part in (found & wanted, wanted, found))
    if average == "micro":
        hits, given, taken = (part.sum(keepdims=True) for part in (hits, given, taken))
    each = 2 * hits / np.maximum(given + taken, 1)
    weights = given if average == "weighted" and given.any() else None
    return float(np.average(each, weights=weights))


def bits_per_byte(loss_sum: float, size_bytes: int) -> float:
    """Return a model's loss in bits per byte of text, which does not depend on the tokenizer.

    Args:
        loss_sum: summed cross-entropy in nats.
        size_bytes: of the text that was predicted, >= 1.

    Raises:
        TypeError: an argument is no number.
        ValueError: the size is below 1.

    Example:
        >>> bits_per_byte(8 * math.log(2), 4)
        2.0
    """
    whole("bits_per_byte", "size_bytes", size_bytes, 1)
    return number("bits_per_byte", "loss_sum", loss_sum, finite=False) / math.log(2) / size_bytes


def token_bytes(tokenizer: Any, vocab_size: int | None = None) -> np.ndarray | None:
    """Return the bytes of text that each token stands for; 0 for marks such as the end of text.

    Args:
        tokenizer: a `Tokenizer`.
        vocab_size: tokens of the model, of which those that the tokenizer lacks stand for no text;
            None is as many as the tokenizer has.

    Returns:
        (V,) counts, or None when the tokenizer's tokens do not tell.

    Raises:
        TypeError: `tokenizer` is a model.

    Example:
        >>> from pyggml.data import Tokenizer
        >>> token_bytes(Tokenizer.chars(["abc"]))
        array([0, 1, 1, 1])
    """
    if isinstance(tokenizer, Module):
        raise TypeError(f"token_bytes: tokenizer must be a Tokenizer; got {shown(tokenizer)}")
    try:
        metadata = tokenizer.to_gguf_metadata(vocab_size=vocab_size)
    except (ValueError, KeyError, AttributeError):
        return None
    tokens, model = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.model"]
    types = np.asarray(metadata.get("tokenizer.ggml.token_type", np.ones(len(tokens))))
    if model == "gpt2" and tokenizer.byte_level:
        # Each byte is one sign there, as GPT-2 spells them.
        sizes = np.array([len(token) for token in tokens], np.int64)
    elif model in ("llama", "gpt2", "gemma4"):
        spaced = (token.replace("\u2581", " ") for token in tokens)
        sizes = np.array([len(token.encode()) for token in spaced], np.int64)
        sizes[types == _BYTE] = 1
    else:
        return None
    sizes[types == _CONTROL] = 0
    sizes[tokenizer.vocab_size :] = 0
    return sizes
