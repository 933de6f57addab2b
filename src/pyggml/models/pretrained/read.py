# SPDX-License-Identifier: MIT
"""Reading Hugging Face folders: configuration, weights one tensor at a time, tokenizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import nn
from ...errors import FormatError, ShapeError, printable, shown
from ...io import StoredArray, open_safetensors, read_regular
from ...tensors import tensor
from .fields import HFConfig, read_json
from .generation import read_generation
from .tokens import read_tokens, template_of

if TYPE_CHECKING:
    from ...data import Tokenizer

__all__ = ["find_config", "read_folder"]

_CONFIG = "config.json"
# The types of the file whose matrices may stay as they are.
_KEPT = {"F16": "f16", "BF16": "bf16"}
# Model types whose own weights are quantised, with the method; state dicts have them as numbers.
_QUANTISED = [["gpt_oss", "mxfp4"]]
# Vocabularies of older libraries, without a tokenizer.json.
_OLD_VOCABULARIES = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def find_config(folder: Path) -> Path | None:
    """Return the `config.json` of a Hugging Face folder; None if it is none."""
    file = folder / _CONFIG
    return file if file.is_file() else None


def read_folder(
    folder: Path, models: Iterable[Any], keep_types: bool = False, tokenizer: bool = True
) -> tuple[Any, Tokenizer | None]:
    """Build the model of a Hugging Face folder, and its tokenizer if it has one.

    Args:
        folder: with `config.json` and `model.safetensors`, or its shards and their index.
        models: classes with `HF_TYPES`; of several for one type, `reads_hf` chooses.
        keep_types: leave f16 and bf16 matrices as they are, frozen.
        tokenizer: whether to read the tokenizer.

    Raises:
        FormatError: a file is damaged, or asks for what no model computes; a tensor is missing,
            unexpected, or of another shape.

    Returns:
        The model, and the tokenizer or None.
    """
    given = HFConfig(folder / _CONFIG, read_json(folder / _CONFIG))
    kind = _choose(given, models)
    config = _configure(kind, given)
    stored = open_safetensors(folder)
    frozen = _common_type(stored) if keep_types else None
    with nn.init.empty_weights(frozen):
        model = kind(config)
    try:
        state = model.own_state(stored)
        _take(model, state, keep_types)
    except (KeyError, ShapeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise FormatError(f"{folder}: {text}") from error
    model.metadata["general.name"] = printable(folder.resolve().name)
    model.metadata |= {**read_tokens(folder, given), **read_generation(folder)}
    template = _template(folder)
    if template is not None:
        model.metadata["tokenizer.chat_template"] = template
    return model, _tokenizer(folder) if tokenizer else None


def _choose(given: HFConfig, models: Iterable[Any]) -> Any:
    """Return the class that reads a configuration."""
    method = given.get("quantization_config")
    if isinstance(method, dict) and method:  # older bitsandbytes folders do not name it
        method = method.get("quant_method", "an unnamed method")
    if method and [given.get("model_type"), method] not in _QUANTISED:
        raise FormatError(
            f"{given.path}: quantization_config must be absent: weights quantised by "
            f"{shown(method)} cannot be read; take the model's f16 or bf16 folder, or a GGUF file"
        )
    readers: dict[str, list[Any]] = {}
    for model in models:
        for name in model.HF_TYPES:
            readers.setdefault(name, []).append(model)
    name = given.get("model_type")
    if name is None and given.get("pyggml") is not None:
        raise FormatError(
            f"{given.path.parent}: the folder of a run must hold model.gguf; it has none: did the"
            " run not finish?"
        )
    if not isinstance(name, str) or name not in readers:
        raise given.error("model_type", f"one of {', '.join(sorted(readers))}")
    named = given.get("architectures", [])
    if not isinstance(named, list):
        raise given.error("architectures", "a list of names")
    for model in readers[name]:
        if model.reads_hf(name, named):
            return model
    names = ", ".join(map(str, named))
    raise given.error("architectures", f"one that can be read, as {names} is not") from None


def _configure(kind: Any, given: HFConfig) -> Any:
    """Return the configuration of a model."""
    try:
        return kind.config_from_hf(given)
    except (TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{given.path}: {error}") from error


def _common_type(stored: dict[str, StoredArray]) -> str | None:
    """Return the type of most numbers of the matrices; None if it is f32."""
    sizes: dict[str, int] = {}
    for one in stored.values():
        if one.ndim > 1:
            sizes[one.dtype] = sizes.get(one.dtype, 0) + one.nbytes
    most = max(sizes, key=lambda name: sizes[name], default="F32")
    return _KEPT.get(most)


def _take(model: Any, state: dict[str, Any], keep_types: bool) -> None:
    """Read tensor after tensor into a model that was made for them."""
    wanted = dict(model.named_state())
    missing = [name for name in wanted if name not in state]
    unexpected = [name for name in state if name not in wanted]
    if missing or unexpected:
        raise FormatError(
            f"the tensors must be those of {type(model).__name__}; "
            f"missing {sorted(missing)[:8]}, unexpected {unexpected[:8]}"
        )
    pairs = []
    for name, value in wanted.items():
        given = state.pop(name)
        array = np.asarray(given)
        if array.shape != value.shape:
            raise ShapeError(f"{name} must have the shape {value.shape}; got {array.shape}")
        if array.dtype.kind not in "fiu":
            raise FormatError(f"{name} must hold numbers; got {array.dtype}")
        kept = _KEPT.get(given.dtype) if isinstance(given, StoredArray) else value.dtype.name
        if keep_types and kept in _KEPT.values() and value.ndim in (2, 3):
            # Widened numbers go back into their type as they were.
            frozen = tensor(np.asarray(array, np.float32), kept, value.device)
            pairs.append((value, frozen))
        elif value.dtype.name == "f32":
            value.copy_(np.asarray(array, np.float32))
        else:
            own = nn.Parameter(np.asarray(array, np.float32), dtype="f32", device=value.device)
            pairs.append((value, own))
    model.replace_tensors(pairs)


def _template(folder: Path) -> str | None:
    """Return the chat template of a folder: a file of its own, or a field of the tokenizer's."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return read_regular(file).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{file}: must be UTF-8 text: {error}") from error
    return template_of(folder)


def _tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a folder; None if it has none that can be read."""
    if (folder / "tokenizer.json").is_file():
        from ...data import Tokenizer

        return Tokenizer.from_file(folder)
    old = [name for name in _OLD_VOCABULARIES if (folder / name).is_file()]
    if old:
        warnings.warn(
            f"load: {folder} has {', '.join(old)} and no tokenizer.json, so that the model comes "
            "without its tokenizer; AutoTokenizer.from_pretrained(folder).save_pretrained(folder) "
            "of transformers writes one",
            stacklevel=4,
        )
    return None
