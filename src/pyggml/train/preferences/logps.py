# SPDX-License-Identifier: MIT
"""Log-probabilities of completions: of each token, and of whole sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks, ops
from ...backend.device import alone
from ...data import Documents
from ...data.dataset import IGNORE_INDEX
from ...data.text.documents import check_documents
from ...graph import compile
from ...nn.losses.distribution import counted
from ...nn.mode import in_mode
from ...nn.weight_check import WeightCheck
from ...tensors import Tensor

__all__ = ["document_logps", "padded", "sequence_logps", "token_counts", "token_logps"]

# Widths of rows are multiples of the first up to the limit, and of the second beyond.
_NARROW, _LIMIT, _WIDE = 8, 64, 32
# From so many tokens at most on, every CPU multiplies quantised weights by its other product, which
# rounds nothing (`is_worth` in packed-gemm.cpp): the log-ratio of two products is not that of two
# models.
_TOKENS = 256


def token_logps(model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> Tensor:
    """Return the log-probability of each target, and 0 of a target that does not count.

    Args:
        model: a language model.
        x: tokens.
        y: the token after each; -100 does not count.
        inputs: further arguments of `model.loss`.

    Shape:
        x (B, T), y (B, T) -> (B, T)

    Example:
        >>> x = pg.tensor([[1, 2, 3]])
        >>> token_logps(model, x, x).shape
        (1, 3)
    """
    checks.having("token_logps", "model", model, "a language model", "loss")
    return ops.neg(model.loss(x, y, reduction="none", **inputs))


def sequence_logps(
    model: Any, x: Tensor, y: Tensor, average: bool = False, **inputs: Tensor
) -> Tensor:
    """Return the summed log-probability of the targets of each row.

    Args:
        model: a language model.
        x: tokens.
        y: the token after each; -100 does not count.
        average: the mean over the targets that count instead of their sum.
        inputs: further arguments of `model.loss`.

    Shape:
        x (B, T), y (B, T) -> (B,)

    Example:
        >>> x, y = pg.tensor([[1, 2, 3]]), pg.tensor([[-100, 3, 4]])
        >>> sequence_logps(model, x, y).shape
        (1,)
    """
    total = token_logps(model, x, y, **inputs).sum(dim=1)
    if not average:
        return total
    return ops.div(total, token_counts(y))


def token_counts(y: Tensor) -> Tensor:
    """Return the number of targets that count in each row, at least 1.

    Args:
        y: targets; -100 does not count.

    Shape:
        y (B, T) -> (B,)
    """
    return ops.clamp(counted(y, IGNORE_INDEX).sum(dim=1), 1.0, float(y.shape[1]))


def document_logps(
    model: Any, documents: Documents, batch_size: int = 8, seq_len: int | None = None
) -> np.ndarray:
    """Return the summed log-probability of the counted tokens of each document.

    Args:
        model: a language model; nothing is dropped.
        documents: token ids, and which of them count.
        batch_size: documents that are read side by side.
        seq_len: most inputs of a row, as those that the numbers are compared with have; None is the
            longest document's.

    Shape:
        -> (D,) f32

    Raises:
        ValueError: a document has more inputs than that, or than the model's context.
        RuntimeError: another thread changed the model's weights meanwhile.

    Example:
        >>> documents = Documents.of([[1, 2, 3], [4, 5]])
        >>> document_logps(model, documents).shape
        (2,)
    """
    who = "document_logps"
    documents = check_documents(who, documents)
    size = checks.whole(who, "batch_size", batch_size, 1)
    found = np.zeros(len(documents), np.float32)
    lengths = np.maximum(documents.lengths - 1, 1)
    most = int(lengths.max()) if seq_len is None else checks.whole(who, "seq_len", seq_len, 1)
    context = getattr(getattr(model, "config", None), "context", None) or most
    if int(lengths.max()) > min(most, context):
        raise ValueError(
            f"{who}: documents must have at most {min(most, context)} inputs; got "
            f"{int(lengths.max())}: cut them, as `limited` of EncodedPreferences does"
        )
    widths = _widths(lengths, size, min(most, context))
    weights = WeightCheck(who, model)
    with in_mode(model, training=False):
        for width in np.unique(widths):
            # Of its own for each width, so that the memory of one graph is taken at a time.
            compute = compile(lambda x, y: sequence_logps(model, x, y))
            numbers = np.flatnonzero(widths == width)
            for start in range(0, numbers.size, size):
                rows = numbers[start : start + size]
                full = np.resize(rows, size)
                x, y = padded(documents, full, int(width), int(width))
                with alone(), weights.unchanged():
                    found[rows] = compute(x, y).numpy()[: rows.size]
    return found


def padded(documents: Documents, numbers: Any, most: int, least: int = 1) -> tuple[Any, Any]:
    """Return inputs and targets of documents side by side, filled up to a few widths.

    Few short documents are filled up further, so that quantised weights are multiplied as for many.

    Args:
        documents: token ids, and which of them count as targets.
        numbers: of the documents.
        most: the width is no larger than that.
        least: and no smaller than that.

    Shape:
        x (B, T), y (B, T), both int32
    """
    lengths = [int(documents.lengths[i]) - 1 for i in numbers]
    width = int(_widths(np.array(max(*lengths, least)), len(lengths), most))
    x = np.zeros((len(lengths), width), np.int32)
    y = np.full((len(lengths), width), IGNORE_INDEX, np.int32)
    for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
        ids, flags = documents[int(number)], documents.targets(int(number))[1:]
        x[row, :length] = ids[:-1]
        y[row, :length][flags] = ids[1:][flags]
    return x, y


def _widths(lengths: np.ndarray, rows: int, most: int) -> np.ndarray:
    """Return lengths rounded up, so that so many rows have few different widths."""
    lengths = np.maximum(lengths, -(-_TOKENS // rows))
    steps = np.where(lengths <= _LIMIT, _NARROW, _WIDE)
    return np.asarray(np.minimum(-(-lengths // steps) * steps, most))
