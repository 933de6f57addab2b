# SPDX-License-Identifier: MIT
"""The parts of a training, checked when they are put together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..models import LanguageModel
from ..nn import Module
from ..optim import Optimizer
from ..tensors import Tensor
from .callbacks.writers import Callback
from .checks import PRECISIONS
from .config import TrainConfig
from .need import need_function
from .scaler import GradScaler

__all__ = [
    "check_step",
    "need_callbacks",
    "need_config",
    "need_data",
    "need_loader",
    "need_model",
    "need_optimizer",
    "need_token_bytes",
    "set_checkpointing",
]


def need_model(who: str, model: Any) -> Module:
    """A module with parameters.

    Args:
        who: what takes it.
        model: what it was given.

    Raises:
        TypeError: it is no module.
        ValueError: it has no parameter.
    """
    if not isinstance(model, Module):
        hint = ": give an object of it" if isinstance(model, type) else ""
        raise TypeError(f"{who}: model must be a pyggml.nn.Module; got {model!r:.60}{hint}")
    if not model.parameters():
        raise ValueError(f"{who}: {type(model).__name__} must have a parameter; it has none")
    return model


def need_optimizer(who: str, optimizer: Any, model: Module) -> Any:
    """An optimizer that trains a parameter of a model.

    Args:
        who: what takes it.
        optimizer: what it was given.
        model: the model.

    Raises:
        TypeError: it is no optimizer.
        ValueError: none of its parameters is the model's.
    """
    if not isinstance(optimizer, Optimizer):
        hint = ": give an object of it" if isinstance(optimizer, type) else ""
        raise TypeError(
            f"{who}: optimizer must be one of pyggml.optim; got {optimizer!r:.60}{hint}"
        )
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for p in optimizer.params):
        raise ValueError(
            f"{who}: the optimizer must have parameters of the model; it has those of another: "
            "make it of this model's parameters()"
        )
    return optimizer


def need_config(who: str, config: Any) -> TrainConfig:
    """A configuration, by default that of all defaults.

    Args:
        who: what takes it.
        config: what it was given.

    Raises:
        TypeError: it is no configuration.
    """
    if config is None:
        return TrainConfig()
    if not isinstance(config, TrainConfig):
        hint = ": give TrainConfig(**options)" if isinstance(config, dict) else ""
        raise TypeError(f"{who}: config must be a TrainConfig; got {type(config).__name__}{hint}")
    return config


def need_data(who: str, data: Any) -> dict[str, Any] | None:
    """What tells one run's data from another's, for its checkpoints.

    Args:
        who: what takes it.
        data: what it was given.

    Raises:
        TypeError: it is no dict of JSON-ready values.
    """
    try:
        json.dumps(data)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{who}: data must be JSON-ready; {error}") from error
    if data is not None and not isinstance(data, dict):
        raise TypeError(f"{who}: data must be a dict or None; got {data!r:.60}")
    return data


def need_loader(who: str, loader: Any, config: TrainConfig, saves: bool) -> Any:
    """What batches come from.

    Args:
        who: what takes it.
        loader: what it was given.
        config: of the run, which epochs make as long as the loader is.
        saves: whether there are to be checkpoints, which keep the loader's place.

    Raises:
        TypeError: it lacks what the run needs of it.
    """
    needed = ["__iter__"]
    needed += ["__len__"] if config.epochs is not None else []
    needed += ["state_dict", "load_state_dict"] if saves else []
    missing = [name for name in needed if not callable(getattr(loader, name, None))]
    if isinstance(loader, (np.ndarray, Tensor, Mapping, str, bytes)):
        raise TypeError(
            f"{who}: loader must give batches without end; got {type(loader).__name__}: give"
            " pyggml.data.Loader(pyggml.data.RandomWindows(tokens, length), batch_size) of tokens"
        )
    if missing or isinstance(loader, type):
        why = "" if "__iter__" in missing else ", which checkpoints or epochs need"
        raise TypeError(
            f"{who}: loader must give batches without end; got {type(loader).__name__} without "
            f"{', '.join(missing)}{why}: give a pyggml.data.Loader"
        )
    return loader


def check_step(loss: Any, precision: Any, scaler: Any) -> None:
    """Refuse what a training step cannot use, before it is made.

    Args:
        loss: a function, or None.
        precision: by its name, or None.
        scaler: a `GradScaler`, or None.

    Raises:
        TypeError: one is of another kind.
        ValueError: there is no such precision.
    """
    if loss is not None:
        need_function("TrainStep", "loss", loss, "from (model, x, y) to the loss of a batch")
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(
            f"TrainStep: precision must be one of {', '.join(PRECISIONS)}, or None; got "
            f"{precision!r:.60}"
        )
    if scaler is not None and not isinstance(scaler, GradScaler):
        raise TypeError(f"TrainStep: scaler must be a GradScaler; got {scaler!r:.60}")


def need_callbacks(who: str, callbacks: Any) -> list[Callback]:
    """Several callbacks.

    Args:
        who: what takes them.
        callbacks: what it was given.

    Raises:
        TypeError: there is something else in it.
    """
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise TypeError(
            f"{who}: callbacks must be a list of them; got {type(callbacks).__name__}: give "
            "[callback]"
        )
    found = list(callbacks)
    for each in found:
        if not isinstance(each, Callback):
            hint = ": give an object of it" if isinstance(each, type) else ""
            raise TypeError(f"{who}: a callback must be a Callback; got {each!r:.60}{hint}")
    return found


def set_checkpointing(who: str, model: Any, every: bool | int | str) -> None:
    """Choose the blocks of a model that are computed twice.

    Args:
        who: what is told.
        model: the model.
        every: for `model.checkpointing`.

    Raises:
        ValueError: the model has no blocks to choose from.
    """
    if hasattr(model, "n_blocks"):
        model.checkpointing = every
    elif every:
        raise ValueError(
            f"{who}: checkpointing needs a model whose blocks it can choose from; got "
            f"{type(model).__name__}, which has no n_blocks: leave it out, or use "
            "pyggml.checkpoint in the model"
        )


def need_token_bytes(who: str, sizes: Any, model: Module) -> np.ndarray | None:
    """How many bytes each token stands for, where it is known.

    Args:
        who: what takes it.
        sizes: what it was given.
        model: whose tokens.

    Raises:
        ValueError: it is not a count for each token.
    """
    if sizes is None:
        return None
    found = np.asarray(sizes)
    least = model.config.vocab_size if isinstance(model, LanguageModel) else 1
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.size < least:
        raise ValueError(
            f"{who}: token_bytes must hold a whole number for each of {least} tokens; got shape "
            f"{found.shape}, dtype {found.dtype}: give token_bytes(tokenizer)"
        )
    return found
