# SPDX-License-Identifier: MIT
"""Describe a file or folder of weights without loading them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import path as checked_path
from ..errors import FormatError
from .gguf import GGUFFile, read_gguf
from .regular import read_regular
from .safetensors import open_safetensors, safetensors_metadata
from .sealed import read_sealed

__all__ = ["inspect_file"]

# Longer lists, such as a vocabulary, are shown by their beginning.
_MOST_ITEMS = 16
_TEMPLATE = "tokenizer.chat_template"


def inspect_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file or folder of weights holds, as values for JSON.

    Args:
        path: a GGUF file (a model or an adapter), a safetensors file, its index, a folder of
            Hugging Face's or of PEFT's, a run's folder, or a checkpoint.

    Returns:
        `path`, `format`, `kind` ("model", "adapter", "checkpoint" or "weights"), `size_bytes`,
        `parameters`, `types` (tensors, parameters and bytes by type), `metadata`, `tensors`, and,
        where there is one, `architecture`, `name`, `tokenizer` and `chat_template`.

    Raises:
        TypeError: path is not a path.
        FileNotFoundError: there is nothing.
        FormatError: it is nothing of these, or is damaged; names file, field and cause.

    Example:
        >>> from pyggml.models import build
        >>> build("llama", "tiny", vocab_size=65).save("model.gguf")
        >>> inspect_file("model.gguf")["architecture"]
        'llama'
    """
    file = checked_path("inspect_file", "path", path)
    if not file.exists():
        raise FileNotFoundError(f"inspect_file: path must be a file or folder; {file} is neither")
    found = _folder(file) if file.is_dir() else _file(file)
    return {"path": os.fspath(path), **found}


def _file(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        return _safetensors(path)
    with read_gguf(path) as file:
        return _gguf(file)


def _folder(path: Path) -> dict[str, Any]:
    if (path / "state.json").is_file():
        return _checkpoint(path)
    if (path / "adapter_config.json").is_file():
        weights = path / "adapter_model.safetensors"
        return {**_safetensors(weights), **_settings(path / "adapter_config.json", "adapter")}
    if (path / "model.gguf").is_file():
        return _file(path / "model.gguf")
    found = _safetensors(path)
    if (path / "config.json").is_file():
        found |= _settings(path / "config.json", "model")
    template = path / "chat_template.jinja"
    if template.is_file():
        found["chat_template"] = read_regular(template).decode("utf-8", "replace")
    return found


def _settings(path: Path, kind: str) -> dict[str, Any]:
    """The configuration of a folder of Hugging Face's or PEFT's."""
    try:
        settings = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"inspect_file: {path}: cannot be read as JSON: {error}") from error
    if not isinstance(settings, dict):
        raise FormatError(f"inspect_file: {path}: must hold a JSON object")
    found: dict[str, Any] = {"kind": kind, "metadata": settings}
    arch = settings.get("model_type", settings.get("peft_type"))
    return {**found, "architecture": arch} if isinstance(arch, str) else found


def _checkpoint(path: Path) -> dict[str, Any]:
    try:
        record = read_sealed(path / "state.json")
    except OSError as error:
        raise FormatError(f"inspect_file: {path}: {error.strerror or error}") from error
    found = _safetensors(path / "model.safetensors")
    names = ("step", "total_steps", "tokens", "elapsed_s", "best", "files")
    kept = {key: record.get(key) for key in names}
    return {**found, "kind": "checkpoint", "metadata": kept}


def _safetensors(path: Path) -> dict[str, Any]:
    tensors = [
        {
            "name": name,
            "dtype": each.dtype,
            "shape": list(each.shape),
            "size_bytes": each.nbytes,
        }
        for name, each in open_safetensors(path).items()
    ]
    single = path if path.is_file() else path / "model.safetensors"
    whole = single.suffix == ".safetensors" and single.is_file()
    metadata = safetensors_metadata(single) if whole else {}
    return {"format": "safetensors", "kind": "weights", **_tensors(tensors), "metadata": metadata}


def _gguf(file: GGUFFile) -> dict[str, Any]:
    metadata = file.metadata
    tensors = [
        {
            "name": info.name,
            "dtype": info.dtype,
            "shape": list(info.shape),
            "size_bytes": info.size_bytes,
        }
        for info in file.tensors.values()
    ]
    adapter = (
        isinstance(metadata.get("general.type"), str) and "adapter" in (metadata["general.type"])
    )
    found: dict[str, Any] = {"format": "gguf", "kind": "adapter" if adapter else "model"}
    for name in ("architecture", "name"):
        if isinstance(metadata.get(f"general.{name}"), str):
            found[name] = metadata[f"general.{name}"]
    found |= _tensors(tensors)
    found["metadata"] = {key: _plain(value) for key, value in metadata.items() if key != _TEMPLATE}
    if "tokenizer.ggml.model" in metadata:
        found["tokenizer"] = _tokenizer(metadata)
    if isinstance(metadata.get(_TEMPLATE), str):
        found["chat_template"] = metadata[_TEMPLATE]
    return found


def _tensors(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    """The tensors, and their sums by type."""
    types: dict[str, dict[str, int]] = {}
    for each in tensors:
        sums = types.setdefault(each["dtype"], {"tensors": 0, "parameters": 0, "size_bytes": 0})
        sums["tensors"] += 1
        sums["parameters"] += math.prod(each["shape"])
        sums["size_bytes"] += each["size_bytes"]
    return {
        "size_bytes": sum(each["size_bytes"] for each in tensors),
        "parameters": sum(sums["parameters"] for sums in types.values()),
        "types": types,
        "tensors": tensors,
    }


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The vocabulary's kind and size, and its special tokens by role."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    tokens = tokens if isinstance(tokens, list) else []
    special: dict[str, Any] = {}
    for key, value in metadata.items():
        role = key.removeprefix("tokenizer.ggml.").removesuffix("_token_id")
        if key.endswith("_token_id") and isinstance(value, int) and not isinstance(value, bool):
            text = tokens[value] if 0 <= value < len(tokens) else None
            special[role] = {"id": value, "text": text}
    merges = metadata.get("tokenizer.ggml.merges", [])
    return {
        "model": _plain(metadata["tokenizer.ggml.model"]),
        "pre": _plain(metadata.get("tokenizer.ggml.pre")),
        "tokens": len(tokens),
        "merges": len(merges) if isinstance(merges, (list, np.ndarray)) else 0,
        "special": special,
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it; a long list as its length and beginning."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list) and len(value) > _MOST_ITEMS:
        return {"count": len(value), "first": [_plain(item) for item in value[:_MOST_ITEMS]]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
