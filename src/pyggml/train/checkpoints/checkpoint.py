# SPDX-License-Identifier: MIT
"""Checkpoints: directories that are whole or absent.

A checkpoint `step-000100/` holds `model.safetensors`, `optimizer.safetensors` and `state.json`. It
is built beside its place, flushed and renamed; then the file `latest` names it, and only then are
older ones removed. `state.json` is the manifest: it has the hashes of the two others and of itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import path as check_path
from ...checks import whole
from ...errors import FormatError
from ...io import atomic_dir, atomic_write, load_safetensors, make_dirs
from ...io.lazy import LazyArray
from ...io.safetensors_write import write_safetensors
from ...io.sealed import hashed
from .folders import LATEST, MODEL, OPTIMIZER, STATE, CheckpointError, list_checkpoints, prune
from .manifest import (
    condition,
    cure,
    is_whole,
    offering,
    read_manifest,
    whole_before,
    write_manifest,
)
from .state import FORMAT, TrainState, check_record, typed

__all__ = [
    "EMA_STATE",
    "Checkpoint",
    "load_checkpoint",
    "load_weights",
    "make_latest",
    "name_latest",
    "save_checkpoint",
    "write_checkpoint",
]

# Where an optimizer state has the average of the weights; names of parameters' states have a dot.
EMA_STATE = "ema"


@dataclass
class Checkpoint:
    """A checkpoint read back.

    Args:
        path: its directory.
        state: where the run stood.
        model: the model's arrays by name.
        optimizer: the optimizer's state: arrays and plain values by name.
    """

    path: Path
    state: TrainState
    model: dict[str, np.ndarray]
    optimizer: dict[str, Any]


def _split(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and plain values of a nested state, both by dotted path."""
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, (np.ndarray, LazyArray)):
            arrays[name] = value
        elif isinstance(value, np.generic):
            values[name] = value.item()
        elif isinstance(value, Mapping) and any(
            isinstance(inner, (np.ndarray, LazyArray, Mapping)) for inner in value.values()
        ):
            inner_arrays, inner_values = _split(value, f"{name}/")
            arrays.update(inner_arrays)
            values.update(inner_values)
        else:
            values[name] = value
    return arrays, values


def _join(arrays: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested state that `_split` took apart."""
    state: dict[str, Any] = {}
    for name, value in {**values, **arrays}.items():
        *outer, last = name.split("/")
        place = state
        for key in outer:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ValueError(f"{name!r} lies below a value")
        place[last] = value
    return state


def save_checkpoint(
    directory: str | Path,
    state: TrainState,
    model: Mapping[str, np.ndarray],
    optimizer: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Write a checkpoint, make it the latest, and remove all but the newest `keep`.

    Args:
        directory: folder of the run's checkpoints; made when missing.
        state: where the run stands.
        model: the model's arrays by name.
        optimizer: the optimizer's state: arrays and JSON-ready values, nested at will.
        keep: newest checkpoints kept, >= 1.

    Returns:
        The new checkpoint's directory.

    Raises:
        TypeError: an argument is of another kind, or a value is neither an array nor JSON-ready.
        ValueError: keep is below 1, or a number of the state is out of range.
        CheckpointError: it could not be written, for instance because the disk is full. The
            earlier checkpoints are whole; the new one is whole, too, if only `latest` could not
            be written, and otherwise nothing is left of it. The message says which.

    Example:
        >>> save_checkpoint("checkpoints", TrainState(10, 20), model.state_dict(), {}).name
        'step-000010'
    """
    who = "save_checkpoint"
    whole(who, "keep", keep, 1)
    directory = check_path(who, "directory", directory)
    if not isinstance(state, TrainState):
        raise TypeError(f"{who}: state must be a TrainState; got {type(state).__name__}")
    for name, arrays in (("model", model), ("optimizer", optimizer)):
        if not isinstance(arrays, Mapping):
            raise TypeError(f"{who}: {name} must be arrays by name; got {type(arrays).__name__}")
    _check_state(who, state, optimizer, directory)
    path = directory / f"step-{state.step:06d}"
    is_new = path not in list_checkpoints(directory)
    try:
        make_dirs(directory)
        with atomic_dir(path, replace=True) as folder:
            write_checkpoint(folder, state, model, optimizer)
    except OSError as error:
        raise CheckpointError(_not_written(path, is_new, error)) from error
    make_latest(path, keep)
    return path


def _check_state(
    who: str, state: TrainState, optimizer: Mapping[str, Any], directory: Path
) -> None:
    """Raise for a state that could not be written or read again, before anything is written."""
    record = {"format": FORMAT, **asdict(state), "optimizer": {}, "files": {}}
    check_record(record, directory / STATE)
    try:
        json.dumps({**record, "optimizer": _split(optimizer)[1]})
    except (TypeError, ValueError) as error:  # another kind, or a circle
        raise TypeError(
            f"{who}: what is no array must be JSON-ready; got a value that is not: {error}"
        ) from error


def write_checkpoint(
    folder: Path, state: TrainState, model: Mapping[str, np.ndarray], optimizer: Mapping[str, Any]
) -> None:
    """Write a checkpoint's files into a folder that is made whole elsewhere; see `atomic_dir`.

    Args:
        folder: an empty folder.
        state: where the run stands.
        model: the model's arrays by name.
        optimizer: the optimizer's state.
    """
    arrays, values = _split(optimizer)
    files: dict[str, Any] = {}
    for name, content in ((MODEL, model), (OPTIMIZER, arrays)):
        with hashed(folder / name) as file:
            write_safetensors(file, content)
        files[name] = file.record()
    write_manifest(folder, {"format": FORMAT, **asdict(state), "optimizer": values, "files": files})


def make_latest(path: Path, keep: int) -> None:
    """Make a checkpoint the latest, and remove all but the newest `keep` of its folder.

    Args:
        path: its directory.
        keep: how many stay.

    Raises:
        CheckpointError: the file `latest` could not be written.
    """
    name_latest(path)
    prune(path.parent, keep)


def name_latest(path: Path) -> None:
    """Write the name of a checkpoint into the file `latest`.

    Args:
        path: its directory.

    Raises:
        CheckpointError: the file could not be written.
    """
    latest = path.parent / LATEST
    try:
        with atomic_write(latest, "w") as file:
            file.write(path.name + "\n")
    except OSError as error:
        raise CheckpointError(
            f"checkpoint: {condition(path)}, but {latest} could not be written "
            f"({error.strerror or error}). {cure(error)}"
        ) from error


def _not_written(path: Path, is_new: bool, error: OSError) -> str:
    """The message of a checkpoint that could not be written, or not be flushed in its place."""
    reason = error.strerror or str(error)
    if is_new and is_whole(path):
        state = f"{path} is whole, but was not flushed to the disk"
        return f"checkpoint: {state} ({reason}). {cure(error)}"
    last, _ = whole_before(path.parent)
    kept = "there is no whole checkpoint" if last is None else f"{last} is whole"
    return f"checkpoint: {path} could not be written ({reason}); {kept}. {cure(error)}"


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint, and check all that it holds.

    Args:
        path: directory of the checkpoint.

    Raises:
        FormatError: a file is missing, damaged or foreign; names file, field and cause, and which
            checkpoint before this one is whole.
    """
    path = check_path("load_checkpoint", "path", path)
    with offering(path):
        record = read_manifest(path)
        values = typed(record, "optimizer", dict, path / STATE)
        model, arrays = load_safetensors(path / MODEL), load_safetensors(path / OPTIMIZER)
        try:
            optimizer = _join(arrays, values)
        except ValueError as error:
            raise FormatError(
                f"{path / STATE}: field 'optimizer' is inconsistent: {error}"
            ) from error
    known = {f.name for f in fields(TrainState)}
    state = TrainState(**{key: value for key, value in record.items() if key in known})
    return Checkpoint(path, state, model, optimizer)


def load_weights(path: str | Path) -> dict[str, np.ndarray]:
    """Read the weights that evaluations use: the average, if the checkpoint has one.

    Args:
        path: directory of the checkpoint.

    Raises:
        FormatError: a file is missing, damaged or foreign; names file, field and cause.
    """
    path = check_path("load_weights", "path", path)
    with offering(path):
        record = read_manifest(path, (MODEL,))
        weights = load_safetensors(path / MODEL)
        if record["config"].get("ema"):
            # The optimizer's own state, twice the size of the model, is read for nothing else.
            read_manifest(path, (OPTIMIZER,))
            prefix = f"{EMA_STATE}/average."
            for name, array in load_safetensors(path / OPTIMIZER).items():
                if name.startswith(prefix):
                    weights[name.removeprefix(prefix)] = array
    return weights
