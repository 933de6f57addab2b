# SPDX-License-Identifier: MIT
"""Taking over everything that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import FormatError
from ..optim import EMA, ReduceOnPlateau
from ..random import random_generator
from .checkpoint import Checkpoint

if TYPE_CHECKING:
    from .trainer import Trainer

__all__ = ["EMA_KEY", "restore"]

# Where a checkpoint's optimizer state has the average; names of parameters' states have a dot.
EMA_KEY = "ema"


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Put a trainer where a checkpoint was written.

    Args:
        trainer: of the same model, optimizer and data.
        checkpoint: what was read.

    Raises:
        FormatError: the checkpoint is of another run, or a state in it is damaged.
    """
    state, where = checkpoint.state, checkpoint.path
    if state.data is not None and trainer.data is not None and state.data != trainer.data:
        raise FormatError(
            f"{where}: data must be that of the run, {state.data}; got {trainer.data}: "
            "the text has changed since; put it back or start anew with --overwrite"
        )
    if state.step > trainer.total_steps:
        raise FormatError(
            f"{where}: step must not be beyond the run's {trainer.total_steps} steps; "
            f"got {state.step}: give --steps {state.step} or more"
        )
    optimizer = dict(checkpoint.optimizer)
    average = optimizer.pop(EMA_KEY, None)
    parts: list[tuple[str, Callable[[Any], Any], Any]] = [
        ("model.safetensors", trainer.model.load_state_dict, checkpoint.model),
        ("optimizer.safetensors", trainer.optimizer.load_state_dict, optimizer),
        ("state.json: loader", trainer.loader.load_state_dict, state.loader),
    ]
    if trainer.scaler is not None and state.scaler is not None:
        parts.append(("state.json: scaler", trainer.scaler.load_state_dict, state.scaler))
    if trainer.ema is not None and isinstance(average, Mapping):
        parts.append(("optimizer.safetensors: ema", trainer.ema.load_state_dict, average))
    if isinstance(trainer.schedule, ReduceOnPlateau) and state.schedule is not None:
        parts.append(("state.json: schedule", trainer.schedule.load_state_dict, state.schedule))
    for what, load, values in parts:
        try:
            load(values)
        except (KeyError, ValueError, TypeError) as error:
            reason = error.args[0] if error.args else error
            raise FormatError(f"{where / what}: does not fit this run: {reason}") from error
    if trainer.ema is not None and average is None:
        # A run that keeps an average from now on begins with the weights as they are.
        trainer.ema = EMA(trainer.model, trainer.ema.decay)
    try:
        random_generator().bit_generator.state = state.rng["generator"]
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise FormatError(
            f"{where / 'state.json'}: field 'rng' is not the state of a generator: {error}"
        ) from error
    trainer.step, trainer.tokens, trainer.elapsed_s = state.step, state.tokens, state.elapsed_s
    trainer.best = state.best
    trainer._evaluated = state.evaluated
    trainer.last_checkpoint = where
