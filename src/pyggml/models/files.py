# SPDX-License-Identifier: MIT
"""Configurations and tensors in GGUF files: what is read is checked before it is used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..backend.dtypes import as_dtype
from ..errors import FormatError, ShapeError, shown
from ..io import GGUFFile, f64, i64
from .config import ModelConfig

__all__ = [
    "LEFT_OUT",
    "UNTIED",
    "check_block_count",
    "check_finite",
    "check_state",
    "check_tensor",
    "config_metadata",
    "drop_copies",
    "keeps_type",
    "matrix_type",
    "own_metadata",
    "read_classes",
    "read_config",
    "read_number",
    "read_own",
    "read_scalar",
    "read_sizes",
    "read_tie",
    "read_vocab_size",
]

C = TypeVar("C", bound=ModelConfig)

# The cures where a state dict has two tensors and the model has one: where the model can be built
# with two, and where it cannot.
UNTIED = "build the model with tie=False"
LEFT_OUT = "this model always ties them: leave out the one that is not wanted"


def config_metadata(arch: str, config: ModelConfig) -> dict[str, Any]:
    """Return a configuration's fields as metadata, each under `arch.field`; None is left out.

    For the architectures that only pyggml has; the others have llama.cpp's keys.
    """
    return {
        f"{arch}.{name}": _typed(value)
        for name, value in config.to_dict().items()
        if value is not None
    }


def _typed(value: Any) -> Any:
    """A field's value with the type that GGUF wants of a number."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return i64(value)
    if isinstance(value, float):
        return f64(value)
    items = list(value)
    if any(isinstance(item, str) for item in items):
        return items
    whole = all(isinstance(item, int) for item in items)
    return np.asarray(items, np.int64 if whole else np.float64)


def read_config(file: GGUFFile, arch: str, kind: type[C]) -> C:
    """Read what `config_metadata` wrote.

    Raises:
        FormatError: a field has another type than the configuration's, or a value is out of range.
    """
    values: dict[str, Any] = {}
    for field in fields(kind):
        key = f"{arch}.{field.name}"
        if key not in file.metadata:
            continue
        value = file.metadata[key]
        if isinstance(value, (list, np.ndarray)):
            value = tuple(value.tolist() if isinstance(value, np.ndarray) else value)
        values[field.name] = value
    try:
        return kind.from_dict(values)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{file.path}: {arch}: {error}") from error


def own_metadata(config: ModelConfig, names: Sequence[str]) -> dict[str, Any]:
    """Return the named fields of a configuration that are not at their default."""
    defaults = {field.name: field.default for field in fields(config)}
    values = {name: getattr(config, name) for name in names}
    return {
        f"pyggml.{name}": _typed(value)
        for name, value in values.items()
        if value is not None and value != defaults[name]
    }


def read_own(file: GGUFFile, config: C, names: Sequence[str]) -> C:
    """Read the fields that `own_metadata` wrote.

    Raises:
        FormatError: a field is out of range.
    """
    given = {n: file.metadata[f"pyggml.{n}"] for n in names if f"pyggml.{n}" in file.metadata}
    if not given:
        return config
    try:
        return config.from_dict({**config.to_dict(), **given})
    except (TypeError, ValueError) as error:
        raise FormatError(f"{file.path}: pyggml.{', pyggml.'.join(given)}: {error}") from error


def check_tensor(file: GGUFFile, name: str, shape: tuple[int, ...]) -> None:
    """Raise a FormatError unless the file holds a tensor of this shape."""
    got = tuple(file.tensors[name].shape) if name in file.tensors else ()
    # GGUF keeps no leading extents of one, and no scalars.
    wanted = shape or (1,)
    if (1,) * (len(wanted) - len(got)) + got != wanted:
        raise FormatError(
            f"{file.path}: tensor {name} must have the shape {shape} by the file's own "
            f"metadata; got {got or 'no such tensor'}"
        )


def check_finite(file: GGUFFile) -> None:
    """Raise a FormatError that names the tensors with NaN or infinite numbers."""
    kinds = {name: as_dtype(info.dtype) for name, info in file.tensors.items()}
    floats = [n for n, kind in kinds.items() if kind.is_readable or kind.name == "f64"]
    _check_arrays(file.path, ((name, file.array(name, dequantise=True)) for name in floats))


def check_state(path: Path, state: Mapping[str, ArrayLike]) -> None:
    """Raise a FormatError that names the arrays with NaN or infinite numbers."""
    _check_arrays(path, ((name, np.asarray(array)) for name, array in state.items()))


def _check_arrays(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    found = ((name, int(np.count_nonzero(~np.isfinite(array)))) for name, array in arrays)
    bad = [f"{name} ({count})" for name, count in found if count]
    if bad:
        more = f" and {len(bad) - 8} more" if len(bad) > 8 else ""
        raise FormatError(
            f"{path}: tensors must hold finite numbers; got NaN or infinity in"
            f" {', '.join(bad[:8])}{more}"
        )


def _is_frozen(dtype: str) -> bool:
    """Return True for a type whose weights are frozen and can be read."""
    kind = as_dtype(dtype)
    return dtype in ("f16", "bf16") or (kind.quantized and kind.is_readable)


def keeps_type(file: GGUFFile, name: str, shape: tuple[int, ...]) -> bool:
    """Return True for one or several matrices of a type that only frozen weights have."""
    return len(shape) in (2, 3) and _is_frozen(file.tensors[name].dtype)


def matrix_type(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> str | None:
    """Return the commonest type of the matrices that are not f32; None if all are f32.

    Args:
        tensors: type and shape of each.
    """
    found: Counter[str] = Counter()
    for name, shape in tensors:
        if len(shape) > 1 and _is_frozen(name):
            found[name] += math.prod(shape)
    return found.most_common(1)[0][0] if found else None


def check_block_count(file: GGUFFile, n_layer: int, prefix: str = "blk.") -> None:
    """Raise a FormatError unless the file has as many blocks as its metadata says."""
    blocks = {
        name.removeprefix(prefix).split(".")[0] for name in file.tensors if name.startswith(prefix)
    }
    if len(blocks) != n_layer:
        raise FormatError(
            f"{file.path}: {file.metadata['general.architecture']}.block_count must be the "
            f"number of blocks that there are, {len(blocks)}; got {n_layer}"
        )


def read_sizes(file: GGUFFile, arch: str, keys: Mapping[str, str]) -> dict[str, int]:
    """Read positive integers from a file's metadata: field of the configuration -> key."""
    sizes = {}
    for field, key in keys.items():
        value = file.metadata.get(f"{arch}.{key}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FormatError(f"{file.path}: {arch}.{key} must be an integer >= 1; got {value!r}")
        sizes[field] = value
    return sizes


def read_scalar(file: GGUFFile, key: str, default: Any = None) -> Any:
    """Read a number, a text or a flag from a file's metadata.

    Raises:
        FormatError: it is a list or an array.
    """
    value = file.metadata.get(key, default)
    if isinstance(value, (list, np.ndarray)):
        raise FormatError(f"{file.path}: {key} must be one value; got {shown(value)}")
    return value


def read_number(file: GGUFFile, key: str, default: float | None = None) -> float:
    """Read a positive finite number from a file's metadata."""
    value = file.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{file.path}: {key} must be a number; got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise FormatError(f"{file.path}: {key} must be finite and > 0; got {value!r}")
    # A float of the file is f32: its shortest decimal is the number that was meant.
    return float(str(np.float32(value)))


def read_classes(file: GGUFFile, arch: str) -> dict[str, Any]:
    """Read a classifier's number of classes, and their names where they have any.

    Raises:
        FormatError: the names are no list of text.
    """
    key = f"{arch}.classifier.output_labels"
    labels, head = file.metadata.get(key), file.tensors.get("cls.output.weight")
    if labels is not None and not isinstance(labels, list):
        raise FormatError(f"{file.path}: {key} must be names; got {shown(labels)}")
    classes = len(labels) if labels else 2
    if head is not None:
        classes = head.shape[0] if len(head.shape) == 2 else 1
    # Numbered names stand for having none.
    named = labels is not None and labels != [f"LABEL_{i}" for i in range(len(labels))]
    return {"classes": classes, "labels": tuple(labels) if labels and named else None}


def read_vocab_size(file: GGUFFile) -> int:
    """Read the vocabulary's size off the embedding table."""
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) > 2:
        raise FormatError(f"{file.path}: the tensor token_embd.weight must be there and 2-d")
    return int(table.shape[0]) if len(table.shape) == 2 else 1


def read_tie(file: GGUFFile) -> bool:
    """Return True if a file has no head of its own, or a copy of the embedding table."""
    if "output.weight" not in file.tensors:
        return True
    if "token_embd.weight" not in file.tensors:
        return False
    head, table = file.tensors["output.weight"], file.tensors["token_embd.weight"]
    if tuple(head.shape) != tuple(table.shape):
        return False
    widened = head.dtype != table.dtype
    # A few rows tell most heads apart; the others are read whole.
    for rows in (4, None):
        first, second = (file.array(each.name, widened, rows) for each in (head, table))
        if not np.array_equal(first, second):
            return False
    return True


def drop_copies(
    who: str, state: Mapping[str, ArrayLike], copies: Mapping[str, tuple[str, str]]
) -> dict[str, ArrayLike]:
    """Return a state dict in which each shared tensor has its own name only.

    Where the own name is missing, a copy takes its place: safetensors keeps one name of several.

    Args:
        who: the caller, for errors.
        state: arrays by name.
        copies: the further names, each with the tensor's own name and the cure for other numbers.

    Raises:
        ShapeError: a copy has another shape than the tensor.
        ValueError: a copy has other numbers.
    """
    clean = dict(state)
    for name, (table, cure) in copies.items():
        if name not in clean:
            continue
        copy = clean.pop(name)
        own = clean.setdefault(table, copy)
        if np.shape(own) != np.shape(copy):
            raise ShapeError(
                f"{who}: {name} must have the shape of {table}, as the model has one tensor for "
                f"both; got {np.shape(copy)} and {np.shape(own)}; {cure}"
            )
        if not np.array_equal(np.asarray(own), np.asarray(copy)):
            raise ValueError(
                f"{who}: {name} must equal {table}, as the model has one tensor for both; got "
                f"other numbers; {cure}"
            )
    return clean
