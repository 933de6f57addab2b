# SPDX-License-Identifier: MIT
"""Loss and perplexity of a model on tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..data import Loader, TokenDataset
from .metrics import EvalMetrics, perplexity
from .step import Batch, TrainStep

__all__ = ["eval_batches", "evaluate"]


def eval_batches(
    ids: np.ndarray, seq_len: int, batch_size: int, max_batches: int | None = None
) -> Iterator[Batch]:
    """Batches that predict every token of a stream but the first exactly once.

    The last window and the last batch are filled up with targets that the loss leaves out, so
    that all batches have one shape.

    Args:
        ids: the tokens.
        seq_len: tokens per window.
        batch_size: windows per batch, fewer when the stream has fewer.
        max_batches: stop after so many; evenly spread over the stream.

    Shape:
        ids (N,) -> x (B, T), y (B, T), both int32

    Raises:
        ValueError: fewer than two tokens, or a size below one.

    Example:
        >>> [y.tolist() for _, y in eval_batches(np.arange(4), 2, 2)]
        [[[1, 2], [3, -100]]]
    """
    dataset = TokenDataset(ids, seq_len, keep_tail=True)
    size = min(batch_size, len(dataset))
    loader = Loader(dataset, size, shuffle=False, pad_last=True)
    chosen: Iterable[int] = range(len(loader))
    if max_batches is not None and max_batches < len(loader):
        chosen = np.linspace(0, len(loader) - 1, max_batches).round().astype(int).tolist()
    wanted = set(chosen)
    return (batch for number, batch in enumerate(loader.once()) if number in wanted)


def evaluate(
    model: Any,
    batches: Iterable[Batch],
    step: TrainStep | None = None,
    at_step: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> EvalMetrics | None:
    """Mean loss per token, and perplexity, over batches.

    Args:
        model: a language model.
        batches: inputs and targets; ignored targets do not count.
        step: a step whose recorded graphs are used again; None records its own.
        at_step: step number that the result carries.
        stop: asked before each batch; when it says yes, there is no result.

    Raises:
        ValueError: no target counts.

    Example:
        >>> evaluate(model, eval_batches(ids, 64, 8)).perplexity
        12.7
    """
    step = step or TrainStep(model, None)
    total, tokens = 0.0, 0
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            if stop():
                return None
            loss, counted = step.loss_sum(batch)
            total += loss
            tokens += counted
    finally:
        model.train(was_training)
    if not tokens:
        raise ValueError("evaluate: at least one target must count; got none")
    mean = total / tokens
    return EvalMetrics(at_step, mean, perplexity(mean), tokens)
