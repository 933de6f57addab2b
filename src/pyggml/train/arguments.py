# SPDX-License-Identifier: MIT
"""Checks of the parts of a training, when they are put together."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import nn
from ..checks import array, choice, function, instance, is_iterable
from ..data import ArrayDataset, Dataset, Loader
from ..data.arrays import as_dataset
from ..data.loader import Epochs
from ..data.variety import check_variety
from ..errors import ConfigError, shown
from ..models import LanguageModel
from ..nn import Module, functional
from ..nn.losses.base import Loss
from ..optim import Optimizer
from ..optim.schedules.adaptive import is_adaptive
from ..options import check_known, check_needs, options_of
from ..tensors import Tensor
from ..tensors.node import caller
from .callbacks import Callback, check_events
from .options import (
    CHECKPOINTS,
    LOADER,
    NAMED_SCHEDULE,
    PRECISIONS,
    PROGRESS,
    VALIDATION,
    TrainerOptions,
)
from .scaler import GradScaler

__all__ = [
    "check_callbacks",
    "check_fingerprint",
    "check_loss",
    "check_model",
    "check_optimizer",
    "check_read",
    "check_step",
    "check_token_bytes",
    "choose_blocks",
    "make_loader",
    "read_options",
    "warn_of_no_steps",
]


# Names that trainers elsewhere take, and where it is given here.
_ELSEWHERE = {
    "progress": "trainer.fit(progress=False)",
    "verbose": "trainer.fit(progress=False)",
    "learning_rate": "lr=",
    "max_epochs": "epochs=",
    "max_steps": "steps=",
    "num_epochs": "epochs=",
    "num_train_epochs": "epochs=",
    "loss_fn": "loss=",
    "criterion": "loss=",
    "validation_data": "val=",
    "eval_dataset": "val=",
    "train_dataset": "train=",
    "validation_split": "val=, with train, val = dataset.split(0.2)",
    "device": "model.to(device), before the trainer is made",
    "accelerator": "model.to(device), before the trainer is made",
    "class_weight": "loss=lambda model, x, y: F.cross_entropy(model(x), y, weight)",
    "sample_weight": "loss=, a function of the batch that weights its rows",
    "shuffle": "train=data.Loader(dataset, batch_size, shuffle=False)",
    "early_stopping": "patience=, in evaluations",
    "steps_per_epoch": "steps=, of the whole run",
    "gradient_accumulation_steps": "accumulate=",
    "accumulate_grad_batches": "accumulate=",
    "gradient_clip_val": "clip=",
    "max_grad_norm": "clip=",
    "weight_decay": "optimizer=optim.AdamW(model, weight_decay=…)",
    "compute_metrics": "metrics=",
    "train_dataloader": "train=",
    "val_dataloader": "val=",
}
# What the names of losses in Keras and PyTorch stand for.
_LOSSES = {
    **dict.fromkeys(("mse", "mean_squared_error", "mse_loss"), "mse_loss"),
    **dict.fromkeys(("mae", "mean_absolute_error", "l1", "l1_loss"), "l1_loss"),
    **dict.fromkeys(("huber", "huber_loss"), "huber_loss"),
    **dict.fromkeys(
        ("bce", "binary_crossentropy", "bce_with_logits"), "binary_cross_entropy_with_logits"
    ),
}
_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "rmsprop": "RMSprop"}


def check_model(who: str, model: Any) -> Module:
    """Return a module with parameters.

    Args:
        who: the function that takes it.
        model: the argument.

    Raises:
        TypeError: it is not a module.
        ValueError: it has no parameter.
    """
    hint = "give an object of it" if isinstance(model, type) else ""
    found = instance(who, "model", model, Module, hint)
    if not found.parameters():
        raise ValueError(
            f"{who}: model must have a parameter; got {type(model).__name__} with none"
        )
    return found


def check_optimizer(who: str, optimizer: Any, model: Module) -> Any:
    """Return an optimizer that trains a parameter of a model.

    Args:
        who: the function that takes it.
        optimizer: the argument.
        model: the model.

    Raises:
        TypeError: it is not an optimizer.
        ValueError: none of its parameters is the model's.
    """
    hint, kind = "", Optimizer
    if isinstance(optimizer, type):
        hint = f"give an object of it, {optimizer.__name__}(model)"
    elif isinstance(optimizer, str):
        name = _OPTIMIZERS.get(optimizer.lower(), "AdamW")
        hint = f"use optim.{name}(model) for {shown(optimizer)}"
    instance(who, "optimizer", optimizer, kind, hint)  # type: ignore[type-abstract]
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for p in optimizer.params):
        raise ValueError(
            f"{who}: optimizer must have parameters of the model; got those of another: "
            "make it of this model"
        )
    return optimizer


def check_loss(who: str, loss: Any) -> Any:
    """Return a function of the model and a batch, or None.

    Args:
        who: the function that takes it.
        loss: the argument.

    Raises:
        TypeError: it is no function, or a loss of `pyggml.nn`, which takes no model.
    """
    name = loss.lower() if isinstance(loss, str) else getattr(loss, "__name__", "")
    kind = loss if isinstance(loss, type) else type(loss)
    if issubclass(kind, Loss) and kind is getattr(nn, kind.__name__, None):
        own = kind.__name__
        got, cure = own, f"lambda model, x, y: nn.{own}()(model(x), y)"
    elif loss is not None and getattr(functional, name, None) is loss:
        got, cure = name, f"lambda model, x, y: F.{name}(model(x), y)"
    elif isinstance(loss, str):
        got = repr(loss)
        cure = f"lambda model, x, y: F.{_LOSSES.get(name, 'cross_entropy')}(model(x), y)"
    else:
        return loss
    raise TypeError(
        f"{who}: loss must be a function of the model and the batch; got {got}: use loss={cure}, or"
        " leave it out: task= chooses one"
    )


def read_options(who: str, options: Any, given: Mapping[str, Any]) -> TrainerOptions:
    """Return the options of a trainer, given as an object, by name, or both.

    Args:
        who: the function that takes them.
        options: a `TrainerOptions`, or None.
        given: options by name, which replace those of the object.

    Raises:
        TypeError: options is another object.
        ConfigError: there is no such option, or a value cannot be used.
    """
    if options is None:
        options = TrainerOptions()
    cure = "give TrainerOptions(**options)" if isinstance(options, Mapping) else ""
    found = instance(who, "options", options, TrainerOptions, cure)
    for name in given:
        if name in _ELSEWHERE:
            raise ConfigError(f"{who}: no option is {name!r}; use {_ELSEWHERE[name]}")
    check_known(who, options_of(TrainerOptions), given)
    return found.replace(**given) if given else found


def check_fingerprint(who: str, data: Any) -> dict[str, Any] | None:
    """Return the fingerprint of a run's data, which its checkpoints keep.

    Args:
        who: the function that takes it.
        data: the argument.

    Raises:
        TypeError: it is not a dict of JSON-ready values.
    """
    try:
        json.dumps(data)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{who}: data must be JSON-ready; {error}") from error
    if data is not None and not isinstance(data, dict):
        raise TypeError(f"{who}: data must be a dict or None; got {data!r:.60}")
    return data


def check_read(
    who: str, options: TrainerOptions, schedule: Any, loader: Any, sets: Any, folder: Any
) -> None:
    """Raise where an option is given that a trainer with these parts does not read.

    Args:
        who: the function that takes them.
        options: the trainer's.
        schedule: a function, or the schedule's name or None.
        loader: makes the training batches.
        sets: the validation sets.
        folder: of the checkpoints, or None.

    Raises:
        ConfigError: names the option and what is missing.
        ValueError: the schedule is told the validation loss, and there is none.
    """
    missing = {}
    if callable(schedule):
        missing[NAMED_SCHEDULE] = "a function", "leave the function out"
    if not isinstance(loader, Epochs):
        missing[LOADER] = type(loader).__name__, "give one"
    if not sets:
        missing[VALIDATION] = "no `val`", "give `val`"
        if is_adaptive(schedule):
            raise ValueError(
                f"{who}: `schedule` needs {VALIDATION}; got no `val`: give `val`, or another "
                "schedule"
            )
    elif is_adaptive(schedule) and options.eval_every == 0:
        raise ConfigError(
            f"{who}: `schedule` needs `eval_every`; got `eval_every`=0: give `eval_every`, or "
            "another schedule"
        )
    if folder is None and not options.patience:
        missing[PROGRESS] = "no `checkpoint_dir` and no `patience`", "give one of them"
    if folder is None:
        missing[CHECKPOINTS] = "no `checkpoint_dir`", "give `checkpoint_dir`"
    values = {name: getattr(options, name) for name in options_of(TrainerOptions)}
    check_needs(who, options_of(TrainerOptions), values, missing)


def make_loader(who: str, train: Any, options: TrainerOptions, saves: bool) -> Any:
    """Return a loader, or make one of a dataset.

    Args:
        who: the function that takes it.
        train: a loader, a dataset or a pair of arrays.
        options: the trainer's; epochs need a loader with a length.
        saves: True where checkpoints keep the loader's place.

    Raises:
        TypeError: it is neither, or lacks what the run needs of it.
        ValueError: it has rows of arrays that nothing can be learnt from.
        ConfigError: the loader makes batches of another size than the one given.
    """
    train = as_dataset(train)
    rows = getattr(train, "dataset", train)  # a loader's
    if isinstance(rows, ArrayDataset):
        check_variety(who, rows)
    if isinstance(train, Dataset) and not hasattr(train, "__iter__"):
        return Loader(train, options.value("batch_size"), seed=options.seed)
    needed = ["__iter__"]
    needed += ["__len__"] if options.epochs is not None else []
    needed += ["state_dict", "load_state_dict"] if saves else []
    missing = [name for name in needed if not callable(getattr(train, name, None))]
    if isinstance(train, (np.ndarray, Tensor, Mapping, str, bytes)):
        raise TypeError(
            f"{who}: train must be a dataset or a loader; got {type(train).__name__}: of arrays"
            " give data.ArrayDataset(x, y), of tokens data.RandomWindows(tokens, length)"
        )
    if isinstance(train, type):
        raise TypeError(
            f"{who}: train must be a dataset or a loader; got the class {train.__name__}: give an "
            "object of it"
        )
    if missing:
        why = "" if "__iter__" in missing else ", which checkpoints or epochs need"
        raise TypeError(
            f"{who}: train must be a dataset or a loader of endless batches; got "
            f"{type(train).__name__} without {', '.join(missing)}{why}: give a pyggml.data.Loader"
        )
    size = getattr(train, "batch_size", None)
    if options.batch_size not in (None, size):
        made = "of its own" if size is None else f"of {size}"
        raise ConfigError(
            f"{who}: `batch_size` needs a dataset; got {options.batch_size} and a loader that makes"
            f" batches {made}: give the dataset, or leave `batch_size` out"
        )
    return train


def check_step(loss: Any, precision: Any, scaler: Any) -> None:
    """Check the loss, the precision and the scaler of a training step.

    Args:
        loss: a function, or None.
        precision: its name, or None.
        scaler: a `GradScaler`, or None.

    Raises:
        TypeError: one is of another kind.
        ValueError: there is no such precision.
    """
    if loss is not None:
        function("TrainStep", "loss", loss, "(model, x, y) -> mean or (sum, count)")
    if precision is not None:
        choice("TrainStep", "precision", precision, PRECISIONS)
    if scaler is not None:
        instance("TrainStep", "scaler", scaler, GradScaler)


def check_callbacks(who: str, callbacks: Any) -> list[Callback]:
    """Return several callbacks as a list.

    Args:
        who: the function that takes them.
        callbacks: the argument.

    Raises:
        TypeError: it holds something else.
        ValueError: one has a method on_… that is never called.
    """
    if isinstance(callbacks, Callback) or not is_iterable(callbacks):
        raise TypeError(
            f"{who}: callbacks must be a list of Callback; got {type(callbacks).__name__}: give "
            "[callback]"
        )
    found = list(callbacks)
    for each in found:
        hint = "give an object of it" if isinstance(each, type) else ""
        check_events(who, instance(who, "each of callbacks", each, Callback, hint))
    return found


def warn_of_no_steps(step: int, total_steps: int) -> None:
    """Warn that a training has no step left.

    Args:
        step: its last one.
        total_steps: those that were planned.
    """
    why = f"step {step:,} of {total_steps:,} was the last"
    if step < total_steps:
        why = f"`patience` ended it at step {step:,}"
    file, line = caller()
    warnings.warn_explicit(
        f"Trainer.fit: nothing is left to train, as {why}: to train the model further, make "
        "another Trainer(model, train, val, trainer.optimizer, steps=more), which goes on from "
        "these weights",
        UserWarning,
        file,
        line,
    )


def choose_blocks(who: str, model: Any, every: bool | int | str) -> None:
    """Set the blocks of a model whose activations the backward computes again.

    Args:
        who: the function that was called.
        model: the model.
        every: value of `model.checkpointing`.

    Raises:
        ConfigError: the model has no blocks to choose from, or fewer than n of every n-th.
    """
    if every and not getattr(model, "n_blocks", 0):
        raise ConfigError(
            f"{who}: `checkpointing` needs a model whose blocks it can choose from; got "
            f"{type(model).__name__}, which has no n_blocks: leave `checkpointing` out, or use "
            "pyggml.checkpoint in the model"
        )
    if isinstance(every, int) and every > getattr(model, "n_blocks", every):
        raise ConfigError(
            f"{who}: `checkpointing` must be at most the model's {model.n_blocks} blocks; got "
            f"`checkpointing`={every}: give all, or {model.n_blocks} or less"
        )
    if hasattr(model, "n_blocks") and every != "auto":  # which the memory plan chooses
        model.checkpointing = every


def check_token_bytes(who: str, sizes: Any, model: Module) -> np.ndarray | None:
    """Return the number of bytes that each token stands for, or None.

    Args:
        who: the function that takes it.
        sizes: the argument.
        model: its vocabulary must be covered.

    Raises:
        TypeError: it is no array.
        ValueError: it is not a count for each token.
    """
    if sizes is None:
        return None
    if not isinstance(sizes, (np.ndarray, list, tuple)):
        raise TypeError(
            f"{who}: token_bytes must be an array; got {shown(sizes)}: give token_bytes(tokenizer)"
        )
    found = array(who, "token_bytes", sizes, kinds=None)
    least = model.config.vocab_size if isinstance(model, LanguageModel) else 1
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.size < least:
        raise ValueError(
            f"{who}: token_bytes must hold a whole number for each of {least} tokens; got shape "
            f"{found.shape}, dtype {found.dtype}: give token_bytes(tokenizer)"
        )
    return found
