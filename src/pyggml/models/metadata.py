# SPDX-License-Identifier: MIT
"""Metadata of files: what was read is written again, unless training changed its meaning."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..checks import mapping
from ..io import u32

__all__ = [
    "FILE_TYPES",
    "base_model",
    "common_type",
    "file_type",
    "kept_metadata",
    "kept_vocabulary",
]

# llama.cpp's enum llama_ftype (include/llama.h), by the type of most numbers; for the types that
# several mixes have, the one that llama.cpp itself guesses.
FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32,
    "q2_K": 10, "q3_K": 12, "q4_K": 15, "q5_K": 17, "q6_K": 18, "iq2_xxs": 19, "iq2_xs": 20,
    "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25, "iq3_s": 26, "iq2_s": 28, "iq4_xs": 30, "iq1_m": 31,
    "tq1_0": 36, "tq2_0": 37, "mxfp4": 38, "nvfp4": 39, "q1_0": 40, "q2_0": 41,
}  # fmt: skip
# Of the file itself, not of the model.
_LAYOUT = ("general.alignment", "split.")
# Of the very weights that training changes.
_IDENTITY: tuple[str, ...] = (
    "general.uuid",
    "general.doi",
    "general.base_model.",
    "quantize.imatrix.",
)
# What a file tells of the model that it came from, under general.base_model.0.
_ORIGIN = (
    *("name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url"),
)
_VOCABULARY = "tokenizer."


def common_type(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> str | None:
    """Return the type of most numbers in matrices; None without any.

    Args:
        tensors: type and shape of each.
    """
    sizes: Counter[str] = Counter()
    for kind, shape in tensors:
        if len(shape) > 1:
            sizes[kind] += math.prod(shape)
    return sizes.most_common(1)[0][0] if sizes else None


def file_type(kind: str, read_kind: str | None, read: Any) -> Any:
    """Return llama.cpp's number of a file's type; None if it has none.

    Args:
        kind: the type of most numbers.
        read_kind: that of the file that the model came from.
        read: the number in that file, or None: a mix such as Q4_K_S stays what it is.
    """
    if kind == read_kind and isinstance(read, (int, np.integer)) and not isinstance(read, bool):
        return u32(int(read))
    return u32(FILE_TYPES[kind]) if kind in FILE_TYPES else None


def kept_metadata(read: Mapping[str, Any], trained: bool, name: str | None) -> dict[str, Any]:
    """Return the metadata of a model's file that its next file has too, but for the tokenizer's.

    Args:
        read: the metadata that the model came with.
        trained: whether its weights have changed since: the name gets a suffix, the file's own
            identity goes, and general.base_model names the model that was trained.
        name: the name that the file gets; None keeps the file's.
    """
    left_out = (*_LAYOUT, _VOCABULARY)
    kept = {key: value for key, value in read.items() if not key.startswith(left_out)}
    if trained:
        kept = {key: value for key, value in kept.items() if not key.startswith(_IDENTITY)}
    if read and trained:
        kept |= base_model(read)
        if isinstance(read.get("general.name"), str):
            kept["general.name"] = f"{read['general.name']} trained with pyggml"
    if name is not None:
        kept["general.name"] = name
    return kept


def base_model(read: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that name the model that was trained; none where it has no name."""
    if not isinstance(read.get("general.name"), str):
        return {}
    found = {field: read.get(f"general.{field}") for field in _ORIGIN}
    named = {f"general.base_model.0.{k}": v for k, v in found.items() if isinstance(v, str)}
    return {"general.base_model.count": u32(1), **named}


def kept_vocabulary(
    read: Mapping[str, Any], vocabulary: Mapping[str, Any] | None, size: int | None
) -> dict[str, Any]:
    """Return the tokenizer's metadata of a model's next file.

    Args:
        read: the metadata that the model came with.
        vocabulary: that of the tokenizer that is saved: what it lacks, such as the chat template,
            stays unless the tokens are others. None keeps the file's vocabulary.
        size: tokens of the model.
    """
    old = {key: value for key, value in read.items() if key.startswith(_VOCABULARY)}
    tokens = old.get("tokenizer.ggml.tokens")
    if vocabulary is None:
        return old if isinstance(tokens, list) and len(tokens) == size else {}
    mapping("to_gguf_metadata", "tokenizer_metadata", vocabulary)
    same = tokens is None or tokens == vocabulary.get("tokenizer.ggml.tokens")
    return {**(old if same else {}), **vocabulary}
