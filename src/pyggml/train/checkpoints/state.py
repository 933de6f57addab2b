# SPDX-License-Identifier: MIT
"""The state of a run, apart from its arrays, read from a file with every field checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import FormatError

__all__ = ["FORMAT", "TrainState", "check_record", "typed"]

FORMAT = 1
# Fields that hold an object or null.
_OBJECTS = ("data", "scaler", "schedule", "adapters", "recipe")
_COUNT_MAX = 2**63 - 1


@dataclass
class TrainState:
    """The state of a run, apart from its arrays.

    Args:
        step: optimizer steps done.
        total_steps: steps of the whole run.
        tokens: tokens trained on.
        elapsed_s: seconds spent training.
        loader: state of the training loader.
        rng: state of the random generator of pyggml.
        config: the options of the trainer.
        best: step and loss of the best evaluation and `stale`, the evaluations since; or None.
        data: fingerprint of the training tokens, or None.
        scaler: state of the loss scaling, or None.
        schedule: state of a schedule that has one, or None.
        evaluated: the last step whose evaluation was done, or None.
        adapters: scale of each adapter by its path, or None; see `nn.LoRALinear`.
        recipe: options of the recipe that made the trainer, or None.
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
    adapters: dict[str, Any] | None = None
    recipe: dict[str, Any] | None = None


def check_record(record: Any, path: Path) -> None:
    """Raise for a record that is not one of a checkpoint; done before writing, too.

    Args:
        record: what `state.json` holds, or is to hold.
        path: where.

    Raises:
        FormatError: names the field and the cause.
    """
    if not isinstance(record, dict):
        raise FormatError(f"{path}: must hold a JSON object; got {type(record).__name__}")
    if record.get("format") != FORMAT:
        raise FormatError(
            f"{path}: format must be {FORMAT}; got {record.get('format')!r}: "
            "was it written by another version of pyggml?"
        )
    step = typed(record, "step", int, path)
    total = typed(record, "total_steps", int, path)
    tokens = typed(record, "tokens", int, path)
    elapsed = typed(record, "elapsed_s", (int, float), path)
    for name, value in (
        ("step", step), ("total_steps", total), ("tokens", tokens), ("elapsed_s", elapsed)
    ):  # fmt: skip
        _check_range(value, name, path)
    if total < step:
        raise FormatError(f"{path}: total_steps must be at least step; got {total} and {step}")
    for name in ("loader", "rng", "config", "files"):
        typed(record, name, dict, path)
    best = typed(record, "best", (dict, type(None)), path)
    if best is not None:
        _check_range(typed(best, "step", int, path, "best."), "best.step", path)
        _check_range(typed(best, "stale", int, path, "best."), "best.stale", path)
        loss = typed(best, "loss", (int, float), path, "best.")
        if isinstance(loss, int):
            _check_range(loss, "best.loss", path)
    for name in _OBJECTS:
        typed(record, name, (dict, type(None)), path)
    adapters = record["adapters"] or {}
    for name in adapters:
        typed(adapters, name, (int, float), path, "adapters.")
    typed(record, "evaluated", (int, type(None)), path)


def _check_range(value: float, name: str, path: Path) -> None:
    """A count or a time that can be one."""
    if not value >= 0:
        raise FormatError(f"{path}: {name} must not be negative; got {value}")
    if value > _COUNT_MAX:
        raise FormatError(f"{path}: {name} must be at most {_COUNT_MAX}; got more")


def typed(record: Mapping[str, Any], name: str, kind: Any, path: Path, prefix: str = "") -> Any:
    """A field of a record, with its type checked.

    Args:
        record: what a file holds.
        name: of the field.
        kind: what it must be, as `isinstance` takes it.
        path: the file.
        prefix: of the record's own name in the file.

    Raises:
        FormatError: it is missing or of another type.
    """
    if name not in record:
        raise FormatError(f"{path}: field {prefix + name!r} is missing")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds)
        raise FormatError(
            f"{path}: field {prefix + name!r} must be {wanted}; got {type(value).__name__}"
        )
    return value
