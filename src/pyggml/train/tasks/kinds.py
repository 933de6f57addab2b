# SPDX-License-Identifier: MIT
"""Tasks: the loss, the metrics and the prediction that go with a kind of targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ... import checks, ops
from ...errors import ConfigError, DTypeError, ShapeError
from ...nn import functional
from ...tensors import Tensor
from ..losses import Count, LossFunction, count_targets, default_loss
from ..metrics.regression import mae, r2_score, rmse
from ..metrics.scoring import f1_score, label_f1_score, subset_accuracy

__all__ = ["TASKS", "Metric", "Task", "find_task", "split_metrics"]

# A function of all predictions and targets; or k, whose top-k accuracy batches add up.
Metric = int | Callable[[np.ndarray, np.ndarray], float]


def _targets_like(who: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Return decimal targets in the shape of the outputs."""
    if y.dtype.name != "f32":
        raise DTypeError(
            f"{who}: targets must be f32; got {y.dtype.name}, of which the class -100 is not "
            f'counted: ArrayDataset(x, y, task="{who}") converts them'
        )
    if y.shape == outputs.shape:
        return y
    if y.numel() != outputs.numel() or y.shape[0] != outputs.shape[0]:
        raise ShapeError(
            f"{who}: targets must have the shape of the outputs; got targets {y.shape} and outputs "
            f"{outputs.shape}: let the model return a number for each target"
        )
    return y.reshape(*outputs.shape)


def _over_rows(errors: Tensor) -> Tensor:
    """Return the sum over rows of the mean of each."""
    return ops.scale(errors.sum(), errors.shape[0] / errors.numel())


def _regression_loss(model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> tuple[Tensor, Count]:
    """Return the squared error in units of the targets' variance, where the model knows it."""
    outputs = model(x, **inputs)
    error = outputs - _targets_like("regression", outputs, y)
    gain = getattr(model, "target_gain", None)
    return _over_rows(ops.sqr(error if gain is None else error * gain)), count_targets


def _label_loss(model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> tuple[Tensor, Count]:
    """Return the binary cross-entropy of a logit for each label."""
    outputs = model(x, **inputs)
    targets = _targets_like("multi_label", outputs, y)
    errors = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return _over_rows(errors), count_targets


def _classes(outputs: np.ndarray) -> np.ndarray:
    """Return the likeliest classes."""
    return np.asarray(outputs.argmax(axis=-1))


def _numbers(outputs: np.ndarray) -> np.ndarray:
    """Return numbers, without an axis of one."""
    return outputs[..., 0] if outputs.ndim > 1 and outputs.shape[-1] == 1 else outputs


def _labels(outputs: np.ndarray) -> np.ndarray:
    """Return 1 for the labels whose probability is above one half."""
    return (outputs > 0).astype(np.int32)


_F1 = {"f1": "macro", "f1_weighted": "weighted", "f1_micro": "micro", "f1_binary": "binary"}
_CLASS_METRICS: dict[str, Metric] = {
    "accuracy": 1,
    **{name: partial(f1_score, average=average) for name, average in _F1.items()},
}


@dataclass(frozen=True)
class Task:
    """A kind of targets, with its loss, its metrics and its prediction.

    Args:
        name: of the task.
        loss: from the model to its loss.
        predict: from the model's outputs to what it predicts.
        metrics: from predictions and targets to a number, by name.
        default: metrics of evaluations for which none is chosen.
        of_classes: whether targets are numbers of classes.
        perplexity: whether exp(loss) says something.
    """

    name: str
    loss: Callable[[Any], LossFunction] = default_loss
    predict: Callable[[np.ndarray], np.ndarray] = _classes
    metrics: Mapping[str, Metric] = field(default_factory=lambda: _CLASS_METRICS)
    default: tuple[str, ...] = ()
    of_classes: bool = True
    perplexity: bool = False

    def metric(self, name: Any) -> Metric:
        """Return a metric of the task.

        Args:
            name: its name.

        Raises:
            ValueError: the task has none of this name.
        """
        if isinstance(name, str) and name in self.metrics:
            return self.metrics[name]
        digits = name[3:] if isinstance(name, str) and name.startswith("top") else ""
        known = self.of_classes and digits.isascii() and digits.isdigit() and len(digits) < 9
        if known and int(digits) > 0:
            return int(digits)
        more = ", top5 and the like" if self.of_classes else ""
        raise ValueError(
            f"a metric of {self.name} must be one of {', '.join(self.metrics)}{more}; got {name!r}"
        )


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("language_modeling", perplexity=True),
        Task("seq2seq", perplexity=True),
        Task("classification", default=("accuracy",)),
        Task("token_classification", default=("accuracy", "f1")),
        Task(
            "multi_label",
            lambda model: _label_loss,
            _labels,
            {
                "accuracy": subset_accuracy,
                "f1": label_f1_score,
                "f1_micro": partial(label_f1_score, average="micro"),
                "f1_weighted": partial(label_f1_score, average="weighted"),
            },
            ("accuracy", "f1"),
            of_classes=False,
        ),
        Task(
            "regression",
            lambda model: _regression_loss,
            _numbers,
            {"r2": r2_score, "rmse": rmse, "mae": mae},
            ("r2", "rmse", "mae"),
            of_classes=False,
        ),
    )
}
"""Every task, by name."""


def find_task(who: str, name: Any, model: Any = None) -> Task | None:
    """Return a task by its name.

    Args:
        who: the function that takes it.
        name: of the task; None is the model's own, if it has one.
        model: may have `task`, a name.

    Raises:
        TypeError: the name is no text.
        ValueError: there is no such task.
    """
    if name is None:
        name = getattr(model, "task", None)
    return None if name is None else TASKS[checks.choice(who, "task", name, TASKS)]


def split_metrics(who: str, given: Any) -> tuple[tuple[str, ...], dict[str, Metric]]:
    """Return the names among metrics, and the functions by their names.

    A function is called with (predictions, targets) of a whole set; one whose arguments are named
    `y_true` and `y_pred`, as those of scikit-learn and Keras are, gets them by name.

    Args:
        who: the function that takes them.
        given: names and functions.

    Raises:
        ConfigError: two functions have one name.
    """
    items = (given,) if callable(given) else tuple(checks.items(who, "metrics", given))
    functions = [each for each in items if callable(each)]
    found = {getattr(each, "__name__", type(each).__name__): _in_order(each) for each in functions}
    if len(found) < len(functions):
        raise ConfigError(f"{who}: `metrics` must have different names; got {', '.join(found)}")
    return tuple(each for each in items if not callable(each)), found


def _in_order(function: Callable[..., Any]) -> Metric:
    """Return a function of predictions and targets."""
    try:
        known = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of a builtin
        known = set()
    if {"y_true", "y_pred"} <= known:
        return lambda predicted, targets: float(function(y_true=targets, y_pred=predicted))
    return lambda predicted, targets: float(function(predicted, targets))
