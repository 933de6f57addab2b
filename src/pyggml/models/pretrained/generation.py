# SPDX-License-Identifier: MIT
"""Settings of generation that a model came with, in folders and in GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import having
from ...errors import FormatError, shown
from ...io import u32
from ..sampling import Sampling
from .fields import HFConfig, read_json

__all__ = ["generation_settings", "read_generation", "written_generation"]

_FILE = "generation_config.json"
# All of the file, for what llama.cpp has no key for.
_WHOLE = "pyggml.generation_config"
_PADDING = "tokenizer.ggml.padding_token_id"
# llama.cpp's keys of the fields, which its programs take as defaults; their types are its own.
_KEYS: dict[str, tuple[str, Any]] = {
    "temperature": ("general.sampling.temp", np.float32),
    "top_k": ("general.sampling.top_k", np.int32),
    "top_p": ("general.sampling.top_p", np.float32),
    "min_p": ("general.sampling.min_p", np.float32),
    "repetition_penalty": ("general.sampling.penalty_repeat", np.float32),
}
# What transformers has for "all tokens", or "as they are".
_NONE = {"top_k": 0, "min_p": 0.0}
_EOS, _PAD = "eos_token_id", "pad_token_id"


def read_generation(folder: Path) -> dict[str, Any]:
    """Return the metadata of a folder's `generation_config.json`; nothing without one.

    Raises:
        FormatError: it is damaged, or a field is out of range.
    """
    file = folder / _FILE
    if not file.is_file():
        return {}
    given = HFConfig(file, read_json(file))
    _ids(given)
    fields = {name: given.number(name, 0.0) for name in _KEYS if given.get(name) is not None}
    if "top_k" in fields:
        fields["top_k"] = given.size("top_k", least=0)
    given.flag("do_sample", False)
    _check(str(file), {**fields, **_typical(given)})
    found: dict[str, Any] = {_WHOLE: json.dumps(given.values, sort_keys=True)}
    found |= {key: kind(fields[name]) for name, (key, kind) in _KEYS.items() if name in fields}
    padding = given.get(_PAD)
    if padding is not None:
        found[_PADDING] = u32(given.size(_PAD, least=0))
    return found


def generation_settings(model: Any) -> dict[str, Any]:
    """Return the arguments of `generate` that a model's makers chose.

    They come from the folder's `generation_config.json`, or from the keys `general.sampling.*` of
    the GGUF file.

    Args:
        model: a model that `load` read, or any other.

    Returns:
        Some of temperature, top_k, top_p, min_p, typical_p, repetition_penalty and stop_ids; none
        where nothing was chosen.

    Raises:
        FormatError: a setting of the file is out of range.

    Example:
        >>> model.metadata["general.sampling.top_k"] = 40
        >>> generation_settings(model)
        {'top_k': 40}
    """
    where = "generation_settings"
    having(where, "model", model, "a model, as load reads it", "metadata")
    given = HFConfig(where, _whole(model.metadata))
    fields = {**_sampling(model.metadata), **_typical(given)}
    if not given.flag("do_sample", True):
        fields["temperature"] = 0.0
    found = _check(where, fields)
    stops = _ids(given)
    return {**found, "stop_ids": stops} if stops else found


def written_generation(model: Any, roles: Mapping[str, int]) -> dict[str, Any]:
    """Return the content of `generation_config.json`.

    Args:
        model: whose settings they are.
        roles: tokens that begin and end a text, by the fields' names; they win over those that
            were read, unless they are among them.
    """
    found = {**_whole(model.metadata), **_sampling(model.metadata)}
    padding = model.metadata.get(_PADDING)
    if _PAD not in found and isinstance(padding, (int, np.integer)):
        found[_PAD] = int(padding)
    for key, number in roles.items():
        old = found.get(key)
        if not isinstance(old, list) or number not in old:
            found[key] = number
    return found


def _whole(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the file that was read."""
    text = metadata.get(_WHOLE)
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}


def _sampling(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of llama.cpp's keys under transformers' names."""
    found: dict[str, Any] = {}
    for name, (key, kind) in _KEYS.items():
        value = metadata.get(key)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
            continue
        # 0.7 and not 0.699999988, which is f32's.
        found[name] = int(value) if kind is np.int32 else float(str(np.float32(value)))
    return found


def _typical(given: HFConfig) -> dict[str, float]:
    """Return typical_p, which llama.cpp has no key for."""
    value = given.number("typical_p", 1.0)
    return {} if value == 1.0 else {"typical_p": value}


def _ids(given: HFConfig) -> list[int]:
    """Return the tokens that end a text: one or several."""
    value = given.get(_EOS, [])
    ids = value if isinstance(value, list) else [value]
    if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
        raise given.error(_EOS, "a token's number, or a list of them")
    return ids


def _check(where: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that change something.

    Raises:
        FormatError: one is out of range.
    """
    found = {name: value for name, value in fields.items() if value != _NONE.get(name, ...)}
    if found.get("top_k", 1) < 0:  # llama.cpp's way to say all
        del found["top_k"]
    try:
        Sampling(**found).check(where)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{error}; the settings are {shown(dict(fields))}") from error
    return found
