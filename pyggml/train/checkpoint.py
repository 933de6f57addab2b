# SPDX-License-Identifier: MIT
"""Checkpoints: directories that are whole or absent.

A checkpoint `step-000100/` holds `model.safetensors`, `optimizer.safetensors` and `state.json`. It
is built beside its place, flushed and renamed; then the file `latest` names it, and only then are
older ones removed. `state.json` records the size and the CRC-32 of the two others.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError
from ..io import atomic_dir, atomic_write, clean_stale, load_safetensors, save_safetensors

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "TrainState",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "save_checkpoint",
    "write_checkpoint",
]

_FORMAT = 1
_NAME = re.compile(r"^step-(\d{6,})$")
_MODEL, _OPTIMIZER, _STATE, _LATEST = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "latest",
)
_CHUNK_BYTES = 1 << 20
# Fields that checkpoints of earlier versions do not have.
_LATER = ("scaler", "schedule")
_COUNT_MAX = 2**63 - 1


class CheckpointError(RuntimeError):
    """A checkpoint, or the mark that it is the latest, could not be written.

    The earlier ones are as they were; the message says whether the new one is whole.
    """


@dataclass
class TrainState:
    """Where a run stands, apart from its arrays.

    Args:
        step: optimizer steps done.
        total_steps: steps of the whole run.
        tokens: tokens trained on.
        elapsed_s: seconds spent training.
        loader: state of the training loader.
        rng: state of the random generator of pyggml.
        config: the run's configuration.
        best: lowest validation loss and its step, or None.
        data: fingerprint of the training tokens, or None.
        scaler: state of the loss scaling, or None.
        schedule: state of a schedule that has one, or None.
        evaluated: the last step whose evaluation was done, or None.
    """

    step: int
    total_steps: int
    tokens: int = 0
    elapsed_s: float = 0.0
    loader: dict[str, Any] = field(default_factory=dict)
    rng: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    scaler: dict[str, Any] | None = None
    schedule: dict[str, Any] | None = None
    evaluated: int | None = None


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


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def _split(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and plain values of a nested state, both by dotted path."""
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, np.generic):
            values[name] = value.item()
        elif isinstance(value, Mapping) and any(
            isinstance(inner, (np.ndarray, Mapping)) for inner in value.values()
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
        ValueError: keep is below 1.
        CheckpointError: it could not be written, for instance because the disk is full. The
            earlier checkpoints are whole; the new one is whole, too, if only `latest` could not
            be written, and otherwise nothing is left of it. The message says which.

    Example:
        >>> save_checkpoint("checkpoints", TrainState(10, 20), model.state_dict(), {}).name
        'step-000010'
    """
    if keep < 1:
        raise ValueError(f"save_checkpoint: keep must be at least 1; got {keep}: give 1 or more")
    directory = Path(directory)
    path = directory / f"step-{state.step:06d}"
    before = list_checkpoints(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with atomic_dir(path, replace=True) as folder:
            write_checkpoint(folder, state, model, optimizer)
        with atomic_write(directory / _LATEST, "w") as file:
            file.write(path.name + "\n")
    except OSError as error:
        raise CheckpointError(_not_written(path, before, error)) from error
    _prune(directory, keep)
    return path


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
    save_safetensors(folder / _MODEL, dict(model), {"format": "pt"})
    save_safetensors(folder / _OPTIMIZER, arrays, {})
    files = {
        name: {"size_bytes": (folder / name).stat().st_size, "crc32": _crc32(folder / name)}
        for name in (_MODEL, _OPTIMIZER)
    }
    record = {"format": _FORMAT, **asdict(state), "optimizer": values, "files": files}
    text = json.dumps(record, indent=1) + "\n"
    (folder / _STATE).write_text(text, encoding="utf-8")


def _not_written(path: Path, before: list[Path], error: OSError) -> str:
    """The message of a checkpoint that could not be written, or not be named the latest."""
    reason = error.strerror or str(error)
    cure = "Make room or repair the folder, then continue with --resume"
    if path not in before and path in list_checkpoints(path.parent):
        latest = path.parent / _LATEST
        return f"checkpoint: {path} is whole, but {latest} could not be written ({reason}). {cure}"
    kept = f"{before[-1]} is whole" if before else "there is no earlier checkpoint"
    return f"checkpoint: {path} could not be written ({reason}); {kept}. {cure}"


def _prune(directory: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what is left of half-removed ones."""
    for path in list_checkpoints(directory)[:-keep]:
        # Without its state a directory is no checkpoint, so that a kill during the removal
        # leaves nothing that could be taken for one.
        (path / _STATE).unlink(missing_ok=True)
    for path in directory.iterdir():
        if _NAME.match(path.name) and path.is_dir() and not (path / _STATE).exists():
            shutil.rmtree(path, ignore_errors=True)


def list_checkpoints(directory: str | Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first.

    Args:
        directory: folder of a run's checkpoints; a missing one is an empty one.
    """
    directory = Path(directory)
    if not directory.is_dir():
        return []
    found = []
    for path in directory.iterdir():
        match = _NAME.match(path.name)
        if match and (path / _STATE).is_file():
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found)]


def clear_ahead(directory: str | Path, step: int) -> list[Path]:
    """Put checkpoints aside that are ahead of the step at which a run begins.

    A run that went back to an earlier checkpoint leaves them behind as `step-000020.left`, whole;
    under their own names they would be taken for its newest.

    Args:
        directory: folder of the run's checkpoints; a missing one is an empty one.
        step: where the run begins.

    Returns:
        Where they are now.

    Raises:
        CheckpointError: the run begins at step 0, so that they are another run's; or one cannot be
            renamed.
    """
    ahead = [path for path in list_checkpoints(directory) if int(path.name[5:]) > step]
    if ahead and not step:
        raise CheckpointError(
            f"checkpoint: {directory} holds {ahead[-1].name} of another run, and this one begins at"
            " step 0: resume() continues there; else give another folder, or move these away"
        )
    left = []
    for path in ahead:
        target, n = path.with_name(f"{path.name}.left"), 1
        while target.exists():
            target, n = path.with_name(f"{path.name}.left{n}"), n + 1
        try:
            path.rename(target)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint: {path} is ahead of step {step} and cannot be put aside"
                f" ({error.strerror or error}); move it away"
            ) from error
        left.append(target)
    return left


def latest_checkpoint(directory: str | Path) -> Path | None:
    """The newest complete checkpoint, after removing what killed processes left.

    Args:
        directory: folder of a run's checkpoints.

    Returns:
        Its directory, or None when there is none. A checkpoint that was renamed into place but
        not yet named by `latest` counts: it is complete.
    """
    clean_stale(directory)
    found = list_checkpoints(directory)
    return found[-1] if found else None


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint; trusts nothing in it.

    Args:
        path: directory of the checkpoint.

    Raises:
        FormatError: a file is missing, damaged or foreign; names file, field and cause.
    """
    path = Path(path)
    state_path = path / _STATE
    record = _read_state(state_path)
    for name in (_MODEL, _OPTIMIZER):
        _check_file(path / name, state_path, record["files"])
    values = _typed(record, "optimizer", dict, state_path)
    known = {f.name for f in fields(TrainState)}
    state = TrainState(**{key: value for key, value in record.items() if key in known})
    model, arrays = load_safetensors(path / _MODEL), load_safetensors(path / _OPTIMIZER)
    try:
        optimizer = _join(arrays, values)
    except ValueError as error:
        raise FormatError(
            f"{state_path}: field 'optimizer' is inconsistent: {error}; {_instead(path)}"
        ) from error
    return Checkpoint(path, state, model, optimizer)


def _read_state(path: Path) -> dict[str, Any]:
    """`state.json` with every field checked."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(
            f"{path}: the file is missing, so this is no complete checkpoint; "
            "give the directory of another one"
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: not a JSON file ({error}); {_instead(path.parent)}") from error
    if not isinstance(record, dict):
        raise FormatError(
            f"{path}: must hold a JSON object; got {type(record).__name__}; {_instead(path.parent)}"
        )
    if record.get("format") != _FORMAT:
        raise FormatError(
            f"{path}: format must be {_FORMAT}; got {record.get('format')!r}: "
            "was it written by another version of pyggml?"
        )
    step = _typed(record, "step", int, path)
    total = _typed(record, "total_steps", int, path)
    tokens = _typed(record, "tokens", int, path)
    elapsed = _typed(record, "elapsed_s", (int, float), path)
    for name, value in (
        ("step", step), ("total_steps", total), ("tokens", tokens), ("elapsed_s", elapsed)
    ):  # fmt: skip
        _check_range(value, name, path)
    if total < step:
        raise FormatError(
            f"{path}: total_steps must be at least step; got {total} and {step}; "
            f"{_instead(path.parent)}"
        )
    match = _NAME.match(path.parent.name)
    if match and int(match[1]) != step:
        raise FormatError(
            f"{path}: step must be that of the directory's name; got {step}; "
            f"{_instead(path.parent)}"
        )
    for name in ("loader", "rng", "config", "files"):
        _typed(record, name, dict, path)
    best = _typed(record, "best", (dict, type(None)), path)
    if best is not None:
        _check_range(_typed(best, "step", int, path, "best."), "best.step", path)
        if "stale" in best:
            _check_range(_typed(best, "stale", int, path, "best."), "best.stale", path)
        loss = _typed(best, "loss", (int, float), path, "best.")
        if isinstance(loss, int):
            _check_range(loss, "best.loss", path)
    _typed(record, "data", (dict, type(None)), path)
    for name in _LATER:
        if name in record:
            _typed(record, name, (dict, type(None)), path)
    if "evaluated" in record:
        _typed(record, "evaluated", (int, type(None)), path)
    return record


def _check_range(value: float, name: str, path: Path) -> None:
    """A count or a time that can be one."""
    if not value >= 0:
        raise FormatError(
            f"{path}: {name} must not be negative; got {value}; {_instead(path.parent)}"
        )
    if value > _COUNT_MAX:
        raise FormatError(
            f"{path}: {name} must be at most {_COUNT_MAX}; got more; {_instead(path.parent)}"
        )


def _typed(record: Mapping[str, Any], name: str, kind: Any, path: Path, prefix: str = "") -> Any:
    """A field of a record, with its type checked."""
    if name not in record:
        raise FormatError(f"{path}: field {prefix + name!r} is missing; {_instead(path.parent)}")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds)
        raise FormatError(
            f"{path}: field {prefix + name!r} must be {wanted}; got {type(value).__name__}; "
            f"{_instead(path.parent)}"
        )
    return value


def _check_file(path: Path, state_path: Path, files: Mapping[str, Any]) -> None:
    """Compare a file with the size and checksum recorded for it."""
    record = _typed(files, path.name, dict, state_path)
    size = _typed(record, "size_bytes", int, state_path)
    crc = _typed(record, "crc32", int, state_path)
    if not path.is_file():
        raise FormatError(f"{path}: the file is missing; {_instead(path.parent)}")
    if path.stat().st_size != size:
        raise FormatError(
            f"{path}: must have {size} bytes; got {path.stat().st_size}: the file is damaged; "
            f"{_instead(path.parent)}"
        )
    if _crc32(path) != crc:
        raise FormatError(
            f"{path}: the CRC-32 must be {crc:08x}; got {_crc32(path):08x}: the file is damaged; "
            f"{_instead(path.parent)}"
        )


def _instead(path: Path) -> str:
    """What to do about a damaged checkpoint."""
    others = [other for other in list_checkpoints(path.parent) if other.name < path.name]
    if others:
        return f"remove {path} to continue from {others[-1].name}"
    return "restore it from a copy, or start anew with --overwrite"
