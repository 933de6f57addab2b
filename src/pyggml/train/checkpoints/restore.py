# SPDX-License-Identifier: MIT
"""The parts of a run that a checkpoint holds, and how they are restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...backend.device import alone
from ...backend.undivided import Undivided
from ...errors import FormatError
from ...models import Model
from ...nn import Module
from ...nn.lora import adapters_of
from ...optim import EMA
from ...optim.schedules.adaptive import is_adaptive
from ...tensors.random import random_generator
from ..run import Run
from .checkpoint import EMA_STATE, Checkpoint
from .state import TrainState

__all__ = [
    "optimizer_state",
    "other_state",
    "rank_state",
    "restore",
    "restore_rank",
    "state_of",
]

# Where an optimizer state has those of ranks that take steps by themselves.
_OUTER, _RANKS = "outer", "ranks"


def state_of(run: Run, loader: dict[str, Any], generator: Mapping[str, Any]) -> TrainState:
    """Return the state of a run, apart from its arrays.

    Args:
        run: the run.
        loader: state of its loader.
        generator: state of the random generator.
    """
    schedule: Any = run.schedule
    return TrainState(
        run.step,
        run.total_steps,
        run.tokens,
        run.elapsed_s,
        loader,
        {"generator": generator},
        run.options.to_dict(),
        run.best,
        run.data,
        None if run.scaler is None else run.scaler.state_dict(),
        schedule.state_dict() if is_adaptive(schedule) else None,
        run.evaluated,
        _scales_of(run.model) or None,
        run.recipe,
    )


def optimizer_state(run: Run) -> dict[str, Any]:
    """Return the state of the optimizer and of the averaged weights.

    Args:
        run: the run.
    """
    return {**run.shards.state_dict(), **other_state(run)}


def other_state(run: Run) -> dict[str, Any]:
    """Return the states beside the optimizer's own: of averaged weights, and of outer steps.

    Args:
        run: the run.
    """
    state: dict[str, Any] = {}
    if run.local is not None:
        state[_OUTER] = run.local.state_dict()
        state |= {_RANKS: run.local.apart} if run.local.apart else {}
    return state if run.ema is None else {**state, EMA_STATE: run.ema.state_dict()}


def rank_state(run: Run) -> dict[str, Any]:
    """Return what a rank that takes steps by itself has for itself.

    Args:
        run: of this rank.
    """
    scaler = {} if run.scaler is None else {"scaler": run.scaler.state_dict()}
    return {"optimizer": run.optimizer.state_dict(), **scaler}


def restore_rank(run: Run, state: dict[str, Any] | None) -> None:
    """Restore what a rank has for itself.

    Args:
        run: of this rank.
        state: as `rank_state` returned it; None changes nothing.
    """
    if state is None:
        return
    run.optimizer.load_state_dict(state["optimizer"])
    if run.scaler is not None and "scaler" in state:
        run.scaler.load_state_dict(state["scaler"])


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Bring a run to where a checkpoint was written, or leave it as it is.

    Args:
        run: of the same model, optimizer and data.
        checkpoint: what was read.

    Raises:
        FormatError: the checkpoint is of another run, or a state in it is damaged; nothing has
            changed then.
    """
    state, where = checkpoint.state, checkpoint.path
    _check_run(run, checkpoint)
    generator = _generator_state(checkpoint)
    optimizer = dict(checkpoint.optimizer)
    average = optimizer.pop(EMA_STATE, None)
    outer, apart = optimizer.pop(_OUTER, {}), optimizer.pop(_RANKS, {})
    # What comes before the last is copied, so that it can be put back. The optimizer, which is the
    # largest, comes last: it changes nothing when its state does not fit.
    parts: list[tuple[str, Any, Any]] = [("state.json: loader", run.loader, state.loader)]
    if run.scaler is not None and state.scaler is not None:
        parts.append(("state.json: scaler", run.scaler, state.scaler))
    if is_adaptive(run.schedule) and state.schedule is not None:
        parts.append(("state.json: schedule", run.schedule, state.schedule))
    if run.ema is not None and average is not None:
        parts.append(("optimizer.safetensors: ema", run.ema, average))
    if checkpoint.model:  # a rank may have its weights already
        parts.append(("model.safetensors", run.weights, checkpoint.model))
    if run.local is not None:  # after the weights, of which it takes the anchor
        parts.append(("optimizer.safetensors: outer", run.local, outer))
    undo: list[Callable[[], None]] = []
    ema = run.ema
    with alone(), Undivided():  # other threads, and handlers of signals, see all of it, or none
        try:
            for what, part, values in parts:
                undo.append(_undo(part))
                _load(where / what, part, values)
            if ema is not None and average is None:
                # A run that keeps an average from now on begins with the weights as they are.
                ema = EMA(run.model, ema.decay)
            _load(where / "optimizer.safetensors", run.shards, optimizer)
        except BaseException:
            for put_back in reversed(undo):
                put_back()
            raise
        run.ema = ema
        if run.local is not None:
            run.local.apart = apart
        random_generator().bit_generator.state = generator
        if state.step and isinstance(run.model, Model):
            run.model.trained = True  # as the file that is made of it tells
        run.step, run.tokens, run.elapsed_s = state.step, state.tokens, state.elapsed_s
        run.drawn, run.batches = [], None
        run.untold.clear()
        run.lowest.record = state.best
        run.evaluated = state.evaluated


def _load(where: Path, part: Any, state: Any) -> None:
    """Give a part its state."""
    try:
        part.load_state_dict(state)
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError) as error:
        reason = error.args[0] if error.args else error
        raise FormatError(f"{where}: does not fit this run: {reason}") from error


def _undo(part: Any) -> Callable[[], None]:
    """Return a function that gives a part its present state back."""
    before = part.state_dict()
    return lambda: part.load_state_dict(before)


def _scales_of(model: Any) -> dict[str, float]:
    """Return the scale of each adapter, which no array holds."""
    if not isinstance(model, Module):
        return {}
    return {path: float(layer.scale) for path, layer in adapters_of(model).items()}


def _check_run(run: Run, checkpoint: Checkpoint) -> None:
    """Raise for a checkpoint of other data or scales of adapters, or beyond the end."""
    state, where = checkpoint.state, checkpoint.path
    if state.data is not None and run.data is not None and state.data != run.data:
        names = [n for n in {**state.data, **run.data} if state.data.get(n) != run.data.get(n)]
        told = ", ".join(f"{n} was {state.data.get(n)} and is {run.data.get(n)}" for n in names)
        raise FormatError(
            f"{where}: data must be that of the run; {told}: what is trained on has changed since;"
            " put it back or start anew"
        )
    here = _scales_of(run.model)
    for path, scale in (state.adapters or {}).items():
        if path in here and here[path] != scale and _same_rank(run, checkpoint, path):
            raise FormatError(
                f"{where / 'state.json'}: adapters: {path} must be scaled by {scale}, as in the "
                f"run; got {here[path]}: call apply_lora with the alpha and rank of then"
            )
    if state.step > run.total_steps:
        more = "more `epochs`" if run.options.epochs else f"`steps`={state.step}, or more"
        raise FormatError(
            f"{where}: step must not be beyond the run's {run.total_steps} steps; "
            f"got {state.step}: give {more}"
        )


def _same_rank(run: Run, checkpoint: Checkpoint, path: str) -> bool:
    """Return whether an adapter has the checkpoint's rank."""
    saved = checkpoint.model.get(f"{path}.lora_A.weight")
    return saved is not None and len(saved) == adapters_of(run.model)[path].rank


def _generator_state(checkpoint: Checkpoint) -> Any:
    """The state of the random generator, tried on another one."""
    try:
        state = checkpoint.state.rng["generator"]
        type(random_generator().bit_generator)(0).state = state
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise FormatError(
            f"{checkpoint.path / 'state.json'}: field 'rng' is not the state of a generator: "
            f"{error}"
        ) from error
    return state
