# SPDX-License-Identifier: MIT
"""Writing Hugging Face folders, which `AutoModel`, `AutoTokenizer` and `AutoConfig` open."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks, nn
from ...errors import shown
from ...io import atomic_write, make_dirs, save_safetensors
from ...io.runs import is_run
from .fields import HFConfig
from .generation import written_generation
from .sentences import written_pooling
from .tokens import padding_id, written_tokens

__all__ = ["save_folder"]

# How a model computes and trains, of which config.json says nothing.
_NOT_WRITTEN = ("attention", "router_aux", "dropout", "bias", "pooling")
_ENDS = ("bos_token", "eos_token")
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def save_folder(
    model: Any,
    folder: str | os.PathLike[str],
    tokenizer: Any = None,
    dtype: str = "f32",
    max_shard_bytes: int = 5_000_000_000,
) -> None:
    """Write a model's folder; see `Model.save_pretrained`.

    Args:
        model: a `Model`.
        folder: where.
        tokenizer: a `pyggml.data.Tokenizer`, or None.
        dtype: "f32", "f16" or "bf16".
        max_shard_bytes: largest file of weights.

    Raises:
        ValueError: transformers has no such model, dtype is unknown, there are LoRA adapters, or
            the folder is that of a training run.
        OSError: a file cannot be written.
    """
    who = "save_pretrained"
    target = checks.path(who, "folder", folder)
    checks.choice(who, "dtype", dtype, _DTYPES)
    checks.whole(who, "max_shard_bytes", max_shard_bytes, 1)
    if is_run(target):
        raise ValueError(
            f"{who}: folder must not be that of a training run, whose config.json would be lost;"
            f" got {target}: name another, such as {target / 'model'}"
        )
    nn.lora.need_no_adapters(who, model)
    config = model.hf_config()
    _check_config(model, config)
    # Without these, transformers takes its own model's numbers.
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    named = {} if tokenizer is None else written_tokens(model, tokenizer)
    config = {**ids, "pad_token_id": padding_id(model), **config}
    config |= {f"{name}_id": tokenizer.token_id(named[name]) for name in _ENDS if name in named}
    config |= {"dtype": _DTYPES[dtype], "torch_dtype": _DTYPES[dtype]}
    arrays: dict[str, Any] = {}
    for name, array in model.hf_state().items():
        matrix = array.ndim > 1 and array.dtype == np.float32
        arrays[name] = array
        if matrix and dtype == "f16":
            arrays[name] = array.astype(np.float16)
        elif matrix and dtype == "bf16":
            arrays[name] = ("bf16", array)
    make_dirs(target)
    size = sum(array[1].nbytes // 2 if isinstance(array, tuple) else array.nbytes
               for array in arrays.values())  # fmt: skip
    if size <= max_shard_bytes:
        save_safetensors(target / "model.safetensors", arrays)
        (target / "model.safetensors.index.json").unlink(missing_ok=True)
    else:
        save_safetensors(target, arrays, max_shard_bytes=max_shard_bytes)
    if tokenizer is not None:
        _save_tokenizer(target, tokenizer, named, config)
    template = model.metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        _write(target / "chat_template.jinja", template)
    writes = model.target_classes == config.get("vocab_size")
    chosen = written_generation(model, {k: config[k] for k in ids if config[k] is not None})
    if chosen and writes:
        _write_json(target / "generation_config.json", chosen)
    if model.vector_pooling is not None:
        for name, content in written_pooling(model.vector_pooling, model.config.n_embd).items():
            make_dirs((target / name).parent)
            _write_json(target / name, content)
    # Last: a folder with it has all the rest.
    _write_json(target / "config.json", config)


def _check_config(model: Any, written: dict[str, Any]) -> None:
    """Raise for a configuration that transformers' class cannot have."""
    again = model.config_from_hf(HFConfig("config.json", written)).to_dict()
    own = model.config.to_dict()
    lost = [n for n in own if n not in _NOT_WRITTEN and own[n] != again.get(n)]
    if lost:
        raise ValueError(
            f"save_pretrained: transformers' {written['architectures'][0]} must have the same "
            f"{', '.join(lost)}; got "
            + ", ".join(f"{n}={shown(own[n])} for {shown(again.get(n))}" for n in lost)
        )


def _save_tokenizer(
    folder: Path, tokenizer: Any, named: dict[str, Any], config: dict[str, Any]
) -> None:
    """Write the files of a tokenizer, as a fast one of transformers."""
    tokenizer.save(folder / "tokenizer.json")
    usual: dict[str, Any] = {"clean_up_tokenization_spaces": False}
    length = config.get("max_position_embeddings") or config.get("n_positions")
    if length is not None:
        usual["model_max_length"] = length
    fast = {"tokenizer_class": "PreTrainedTokenizerFast"}
    _write_json(folder / "tokenizer_config.json", {**usual, **named, **fast})


def _write(file: Path, text: str) -> None:
    with atomic_write(file, "w") as handle:
        handle.write(text)


def _write_json(file: Path, content: Any) -> None:
    _write(file, json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n")
