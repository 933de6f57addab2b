# SPDX-License-Identifier: MIT
"""Loss, perplexity and other metrics of a model over batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from ...backend.device import alone
from ...checks import function, instance, is_iterable, names, whole
from ...data import IGNORE_INDEX, Loader, TokenDataset
from ...distributed import Group
from ...errors import ConfigError, shown
from ...nn.weight_check import WeightCheck
from ..arguments import check_token_bytes
from ..metrics.records import EvalMetrics, perplexity
from ..metrics.scoring import bits_per_byte, top_k_accuracy
from ..step import Batch, TrainStep
from ..tasks import TASKS, Metric, Task, split_metrics

__all__ = ["Spare", "check_metric", "eval_batches", "evaluate", "evenly"]


def eval_batches(
    ids: np.ndarray, seq_len: int, batch_size: int, max_batches: int | None = None
) -> Iterator[Batch]:
    """Return batches that predict each token of a stream once, except the first token.

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
    size = whole("eval_batches", "batch_size", batch_size, 1)
    if max_batches is not None:
        whole("eval_batches", "max_batches", max_batches, 1)
    dataset = TokenDataset(ids, seq_len, keep_tail=True)
    loader = Loader(dataset, min(size, len(dataset)), shuffle=False, pad_last=True)
    return evenly(loader, max_batches)


def evenly(loader: Loader, most: int | None) -> Iterator[Batch]:
    """Return the batches of an epoch in order, or `most` of them at even distances.

    Args:
        loader: the loader.
        most: largest number of batches; None takes all.
    """
    wanted = set(range(len(loader)))
    if most is not None and most < len(loader):
        wanted = set(np.linspace(0, len(loader) - 1, most).round().astype(int).tolist())
    return (batch for number, batch in enumerate(loader.once()) if number in wanted)


@dataclass(frozen=True)
class Spare:
    """A batch that another rank counts.

    Args:
        batch: inputs and targets.
    """

    batch: Batch


def evaluate(
    model: Any,
    batches: Iterable[Batch],
    step: TrainStep | None = None,
    at_step: int = 0,
    stop: Callable[[], bool] = lambda: False,
    metrics: Sequence[Any] | Mapping[str, Metric] = (),
    token_bytes: np.ndarray | None = None,
    name: str = "validation",
    group: Group | None = None,
    task: Task | None = None,
) -> EvalMetrics | None:
    """Compute the mean loss per target, perplexity and other metrics over batches.

    There is a perplexity where the loss is a cross-entropy.

    Args:
        model: the model.
        batches: inputs and targets; ignored targets do not count.
        step: a step whose loss and recorded graphs are used; None makes one.
        at_step: step number of the result.
        stop: asked before each batch; True ends the evaluation without a result.
        metrics: computed of the outputs, which costs a second forward: names of the task's, such
            as `accuracy`, `top5` and the like, `f1`, `f1_weighted`, `f1_micro`, `f1_binary`; or
            functions of (predictions, targets) of the whole set, also of (y_true, y_pred); or both
            kinds of rules by name.
        token_bytes: bytes of text of each token, for bits per byte.
        name: name of the set in the result.
        group: ranks that evaluate other batches of the set; the result is that of all of them.
        task: what the outputs are; None is a classification whose loss is told as a perplexity.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: no target counts, a metric is unknown, or one does not suit the logits.
        RuntimeError: another thread changed the model's weights meanwhile.

    Example:
        >>> evaluate(model, eval_batches(np.arange(60), 8, 4)).tokens
        59
    """
    kind = task or TASKS["classification"]
    asked = dict(metrics) if isinstance(metrics, Mapping) else read_metrics(kind, metrics)
    checked = False
    sums = _Sums()
    if not is_iterable(batches):
        raise TypeError(f"evaluate: batches must be iterable; got {shown(batches)}")
    if step is not None:
        instance("evaluate", "step", step, TrainStep)
    function("evaluate", "stop", stop, "() -> bool")
    whole("evaluate", "at_step", at_step, 0)
    step = step or TrainStep(model, None)
    token_bytes = check_token_bytes("evaluate", token_bytes, step.model)
    weights = WeightCheck("evaluate", step.model)
    # Of ranks that hold parts of the parameters, each computes what the others compute.
    joins = step.exchange is not None and step.exchange.delivery.windows is not None
    for each in batches:
        batch, is_spare = (each.batch, True) if isinstance(each, Spare) else (each, False)
        must_stop = stop()
        sums.stopped = step.group.any(must_stop) if joins else must_stop
        if sums.stopped:
            break
        with alone(), weights.unchanged():
            loss, counted, own = step.evaluated(batch)
            needs_logits = asked and (joins or (counted and not is_spare))
            logits = step.logits(batch) if needs_logits else None
        if is_spare:
            continue
        _add(sums.own, own)
        sums.loss += loss
        sums.tokens += counted
        sums.is_cross_entropy = step.is_cross_entropy(batch)
        if token_bytes is not None:
            sums.bytes += int(token_bytes[batch[1][batch[1] != IGNORE_INDEX]].sum())
        if logits is None or not counted:
            continue
        if not checked:
            for metric, rule in asked.items():
                check_metric(metric, rule, logits.shape, batch[1], kind)
            checked = True
        for metric, rule in asked.items():
            if isinstance(rule, int):
                hits = top_k_accuracy(logits, batch[1], rule) * counted
                _add(sums.hits, {metric: hits})
        if any(callable(rule) for rule in asked.values()):
            sums.guesses.append(_judged(kind, logits, batch))
    if group is not None and group.size > 1:
        sums = reduce(_Sums.add, group.gather(sums))
    if sums.stopped:
        return None
    tokens = sums.tokens
    if not tokens:
        raise ValueError("evaluate: at least one target must count; got none")
    mean = sums.loss / tokens
    return EvalMetrics(
        at_step,
        mean,
        perplexity(mean) if sums.is_cross_entropy and (task is None or task.perplexity) else None,
        tokens,
        bits_per_byte(sums.loss, sums.bytes) if sums.bytes else None,
        {
            **{metric: value / tokens for metric, value in sums.own.items()},
            **{
                metric: _value(rule, sums.hits.get(metric, 0.0) / tokens, sums.guesses)
                for metric, rule in asked.items()
            },
        },
        name,
    )


def read_metrics(task: Task, given: Any) -> dict[str, Metric]:
    """Return metrics of a task by name.

    Args:
        task: knows the names.
        given: names and functions.

    Raises:
        ValueError: the task has no metric of a name.
    """
    chosen, functions = split_metrics("evaluate", given)
    return {name: task.metric(name) for name in names("evaluate", "metrics", chosen)} | functions


@dataclass
class _Sums:
    """Sums of an evaluation over batches, and over ranks."""

    loss: float = 0.0
    tokens: int = 0
    bytes: int = 0
    own: dict[str, float] = field(default_factory=dict)
    hits: dict[str, float] = field(default_factory=dict)
    guesses: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    is_cross_entropy: bool = False
    stopped: bool = False

    def add(self, other: _Sums) -> _Sums:
        """Add the sums of another rank."""
        _add(self.own, other.own)
        _add(self.hits, other.hits)
        return _Sums(
            self.loss + other.loss,
            self.tokens + other.tokens,
            self.bytes + other.bytes,
            self.own,
            self.hits,
            self.guesses + other.guesses,
            self.is_cross_entropy or other.is_cross_entropy,
            self.stopped or other.stopped,
        )


def _add(sums: dict[str, float], more: Mapping[str, float]) -> None:
    """Add numbers to those of the same names."""
    for name, value in more.items():
        sums[name] = sums.get(name, 0.0) + value


def _judged(kind: Task, outputs: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and targets of what counts in a batch."""
    if not kind.of_classes:
        rows = getattr(batch, "rows", len(batch[1]))
        return kind.predict(outputs)[:rows], batch[1][:rows]
    counts = batch[1] != IGNORE_INDEX
    return kind.predict(outputs)[counts], batch[1][counts]


def _value(rule: Metric, share: float, guesses: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return a metric of all batches together."""
    if isinstance(rule, int):
        return share
    predicted, targets = (np.concatenate(part) for part in zip(*guesses, strict=True))
    return rule(predicted, targets)


def check_metric(
    metric: str, rule: Metric, shape: Sequence[int], targets: np.ndarray, task: Task
) -> None:
    """Raise for a metric that does not suit a model's outputs.

    Args:
        metric: its name.
        rule: from `Task.metric`.
        shape: of the outputs, the classes last.
        targets: of a batch.
        task: what the outputs are.

    Raises:
        ConfigError: the targets are not those of the task for these outputs, there are too few
            classes for so many guesses, or F1 of two classes is asked of more.
    """
    classes = shape[-1] if shape else 0
    if not task.of_classes:
        if targets.size != math.prod(shape):
            raise ConfigError(
                f"`metrics`={metric} needs a target for each output; got outputs {tuple(shape)} "
                f"and targets {targets.shape}: let the model return as many"
            )
        return
    if targets.dtype.kind == "f" or tuple(shape[:-1]) != targets.shape:
        rows = targets.shape == tuple(shape)
        cure = "give y.argmax(-1), the classes of one-hot rows, or " if rows else ""
        raise ConfigError(
            f"`metrics`={metric} needs logits (..., V) and targets (...) that are classes; got "
            f"logits {tuple(shape)} and targets {targets.shape}, {targets.dtype}: {cure}leave it "
            "out"
        )
    if isinstance(rule, int) and rule >= classes:
        raise ConfigError(
            f"`metrics`={metric} needs more than {rule} classes, or it is always 1; the model has "
            f"{classes}: ask for fewer guesses, or leave it out"
        )
    if metric == "f1_binary" and classes != 2:
        raise ConfigError(
            f"`metrics`={metric} is of class 1 against class 0; the model has {classes} classes: "
            "ask for f1, f1_weighted or f1_micro"
        )
