# SPDX-License-Identifier: MIT
"""Special tokens of Hugging Face folders, which neither the weights nor the vocabulary hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import having
from ...errors import FormatError, shown
from ...io import u32
from .fields import HFConfig, read_json

__all__ = ["padding_id", "read_tokens", "template_of", "written_tokens"]

_FILE = "tokenizer_config.json"
# The fields that are kept, which llama.cpp has no keys for; another vocabulary loses them.
_KEPT = "tokenizer.pyggml.config"
_PADDING = "tokenizer.ggml.padding_token_id"
# GGUF's names of the tokens that have one.
_ROLES = {
    **{"bos": None, "eos": None, "unk": "unknown", "sep": "seperator", "pad": "padding"},
    **{"cls": "cls", "mask": "mask"},
}
_FIELDS = (
    *("model_max_length", "model_input_names", "padding_side", "truncation_side"),
    *("clean_up_tokenization_spaces", "additional_special_tokens", "extra_special_tokens"),
)


def read_tokens(folder: Path, config: HFConfig) -> dict[str, Any]:
    """Return the metadata of a folder's special tokens.

    Args:
        folder: with `tokenizer_config.json`, or without.
        config: the fields of its `config.json`, which may name the padding.

    Raises:
        FormatError: a file is damaged.
    """
    found: dict[str, Any] = {}
    given = read_json(folder / _FILE) if (folder / _FILE).is_file() else {}
    names = (*(f"{role}_token" for role in _ROLES), *_FIELDS)
    kept = {name: given[name] for name in names if name in given}
    if kept:
        found[_KEPT] = json.dumps(kept, sort_keys=True)
    if config.get("pad_token_id", -1) != -1:  # -1 is none in older files
        number = config.size("pad_token_id", least=0)
        if number >= 2**32:
            raise config.error("pad_token_id", "below 2**32")
        found[_PADDING] = u32(number)
    return found


def padding_id(model: Any) -> int | None:
    """Return the token of a model's padding; None if none of its vocabulary is known."""
    return _number(model, "padding")


def written_tokens(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Return the fields of `tokenizer_config.json` that name special tokens and their use.

    Args:
        model: what it was read with is written again, where the vocabulary has the tokens.
        tokenizer: whose first and last token win, unless the folder said that there are none.
    """
    kind = "bos_id", "eos_id", "token_id", "token"
    having("save_pretrained", "tokenizer", tokenizer, "a Tokenizer", *kind)
    try:
        read = json.loads(model.metadata.get(_KEPT, "{}"))
    except (TypeError, ValueError, RecursionError):
        read = {}
    read = read if isinstance(read, dict) else {}
    found = {name: read[name] for name in _FIELDS if name in read}
    ends = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    for role, key in _ROLES.items():
        name = f"{role}_token"
        text = _text(read.get(name))
        if text is None or tokenizer.token_id(text) is None:
            number = ends[role] if key is None else _number(model, key)
            absent = read and text is None and key is None  # the folder has no such token
            text = None if number is None or absent else tokenizer.token(number)
        if text is not None:
            found[name] = text
    return found


def template_of(folder: Path) -> str | None:
    """Return the chat template that `tokenizer_config.json` holds; None without one."""
    file = folder / _FILE
    if not file.is_file():
        return None
    found = read_json(file).get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {e.get("name"): e.get("template") for e in found if isinstance(e, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise FormatError(f"{file}: chat_template must be text; got {shown(found)}")
    return found


def _number(model: Any, key: str) -> int | None:
    """Return the number of a special token; None if the vocabulary has no such number."""
    found = model.metadata.get(f"tokenizer.ggml.{key}_token_id")
    number = int(found) if isinstance(found, (int, np.integer)) else -1
    return number if 0 <= number < getattr(model.config, "vocab_size", 0) else None


def _text(given: Any) -> str | None:
    """Return a special token's text; transformers writes some with their flags."""
    given = given.get("content") if isinstance(given, Mapping) else given
    return given if isinstance(given, str) else None
