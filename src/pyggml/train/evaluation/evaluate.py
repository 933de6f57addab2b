# SPDX-License-Identifier: MIT
"""Loss, perplexity and scores of a model on tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...data import IGNORE_INDEX, Loader, TokenDataset
from ..arguments import need_token_bytes
from ..metrics.records import EvalMetrics, perplexity
from ..metrics.scoring import bits_per_byte, f1_score, top_k_accuracy
from ..need import need_function, need_texts, need_whole
from ..step import Batch, TrainStep

__all__ = ["check_score", "eval_batches", "evaluate", "evenly", "parse_score"]

_F1 = {"f1": "macro", "f1_weighted": "weighted", "f1_micro": "micro", "f1_binary": "binary"}


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
        TypeError: a size is no whole number.
        ValueError: fewer than two tokens, or a size below one.

    Example:
        >>> [y.tolist() for _, y in eval_batches(np.arange(4), 2, 2)]
        [[[1, 2], [3, -100]]]
    """
    size = need_whole("eval_batches", "batch_size", batch_size, 1)
    if max_batches is not None:
        need_whole("eval_batches", "max_batches", max_batches, 1)
    dataset = TokenDataset(ids, seq_len, keep_tail=True)
    loader = Loader(dataset, min(size, len(dataset)), shuffle=False, pad_last=True)
    return evenly(loader, max_batches)


def evenly(loader: Loader, most: int | None) -> Iterator[Batch]:
    """Batches of an epoch in its order, or some that lie evenly in it.

    Args:
        loader: what has them.
        most: how many at most; None takes all.
    """
    wanted = set(range(len(loader)))
    if most is not None and most < len(loader):
        wanted = set(np.linspace(0, len(loader) - 1, most).round().astype(int).tolist())
    return (batch for number, batch in enumerate(loader.once()) if number in wanted)


def evaluate(
    model: Any,
    batches: Iterable[Batch],
    step: TrainStep | None = None,
    at_step: int = 0,
    stop: Callable[[], bool] = lambda: False,
    scores: Sequence[str] = (),
    token_bytes: np.ndarray | None = None,
    name: str = "validation",
) -> EvalMetrics | None:
    """Mean loss per token, perplexity and other scores over batches.

    Args:
        model: a language model.
        batches: inputs and targets; ignored targets do not count.
        step: a step whose recorded graphs are used again; None records its own.
        at_step: step number that the result carries.
        stop: asked before each batch; when it says yes, there is no result.
        scores: others to compute of the logits, which costs a second forward: `accuracy`, `top5`
            and the like, `f1`, `f1_weighted`, `f1_micro`, `f1_binary`.
        token_bytes: bytes of text of each token, for bits per byte.
        name: of the set, which the result carries.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: no target counts, an unknown score, or one that is not for such logits.

    Example:
        >>> evaluate(model, eval_batches(ids, 64, 8)).perplexity
        12.7
    """
    scores = need_texts("evaluate", "scores", scores)
    asked = {score: parse_score(score) for score in scores}
    checked = False
    guesses: list[tuple[np.ndarray, np.ndarray]] = []
    if not isinstance(batches, Iterable):
        raise TypeError(f"evaluate: batches must be several; got {type(batches).__name__}")
    if step is not None and not isinstance(step, TrainStep):
        raise TypeError(f"evaluate: step must be a TrainStep or None; got {type(step).__name__}")
    need_function("evaluate", "stop", stop, "without arguments, to whether to stop")
    need_whole("evaluate", "at_step", at_step)
    step = step or TrainStep(model, None)
    token_bytes = need_token_bytes("evaluate", token_bytes, step.model)
    total, tokens, size = 0.0, 0, 0
    hits = dict.fromkeys(scores, 0.0)
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            if stop():
                return None
            loss, counted = step.loss_sum(batch)
            total += loss
            tokens += counted
            if token_bytes is not None:
                size += int(token_bytes[batch[1][batch[1] != IGNORE_INDEX]].sum())
            if not asked or not counted:
                continue
            logits = step.logits(batch)
            if not checked:
                for score, rule in asked.items():
                    check_score(score, rule, logits.shape, batch[1])
                checked = True
            for score, rule in asked.items():
                if isinstance(rule, int):
                    hits[score] += top_k_accuracy(logits, batch[1], rule) * counted
            if any(isinstance(rule, str) for rule in asked.values()):
                guesses.append((logits.argmax(axis=-1).ravel(), batch[1].ravel()))
    finally:
        model.train(was_training)
    if not tokens:
        raise ValueError("evaluate: at least one target must count; got none")
    mean = total / tokens
    return EvalMetrics(
        at_step,
        mean,
        perplexity(mean),
        tokens,
        bits_per_byte(total, size) if size else None,
        {score: _score(rule, hits[score] / tokens, guesses) for score, rule in asked.items()},
        name,
    )


def _score(
    rule: int | str, share: float, guesses: Sequence[tuple[np.ndarray, np.ndarray]]
) -> float:
    """A score of all batches together."""
    if isinstance(rule, int):
        return share
    predicted, targets = (np.concatenate(part) for part in zip(*guesses, strict=True))
    return f1_score(predicted, targets, rule)


def parse_score(score: str) -> int | str:
    """How many guesses a score allows, `accuracy` one, `top5` five; or which mean an F1 is.

    Args:
        score: its name.

    Raises:
        ValueError: it is none.

    Example:
        >>> parse_score("top5"), parse_score("f1"), parse_score("f1_micro")
        (5, 'macro', 'micro')
    """
    if score in _F1:
        return _F1[score]
    if score == "accuracy":
        return 1
    digits = score[3:] if isinstance(score, str) and score.startswith("top") else ""
    if digits.isascii() and digits.isdigit() and int(digits[:9]) > 0 and len(digits) < 9:
        return int(digits)
    raise ValueError(
        f"a score must be accuracy, top5 and the like, or one of {', '.join(_F1)}; got {score!r}"
    )


def check_score(score: str, rule: int | str, shape: Sequence[int], targets: np.ndarray) -> None:
    """Refuse a score that says nothing of a model's guesses.

    Args:
        score: its name.
        rule: from `parse_score`.
        shape: of the logits, the classes last.
        targets: of a batch.

    Raises:
        ValueError: the targets are no classes of these logits, there are too few classes for so
            many guesses, or F1 of two classes is asked of more.
    """
    classes = shape[-1] if shape else 0
    if targets.dtype.kind == "f" or tuple(shape[:-1]) != targets.shape:
        raise ValueError(
            f"the score {score} needs logits (..., V) and targets (...) that are classes; got "
            f"logits {tuple(shape)} and targets {targets.shape}, {targets.dtype}: leave it out"
        )
    if isinstance(rule, int) and rule >= classes:
        raise ValueError(
            f"the score {score} needs more than {rule} classes, or it is always 1; the model has "
            f"{classes}: ask for fewer guesses, or leave it out"
        )
    if rule == "binary" and classes != 2:
        raise ValueError(
            f"the score {score} is of class 1 against class 0; the model has {classes} classes: "
            "ask for f1, f1_weighted or f1_micro"
        )
