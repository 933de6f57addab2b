# SPDX-License-Identifier: MIT
"""The stretching of positions in GGUF files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ...errors import FormatError
from ...io import GGUFFile, f32, u32
from ...nn import RopeScaling
from ..files import check_tensor, read_number, read_scalar, read_sizes
from .config import LlamaConfig

__all__ = ["gguf_extra", "read_scaling", "scaling_keys"]

# A scaling that llama.cpp has no key for, or not all of it, as JSON.
_SCALING_KEY = "pyggml.rope_scaling"
_DIVISORS = "rope_freqs.weight"
_LONG = {"long": "rope_factors_long.weight", "short": "rope_factors_short.weight"}


def gguf_extra(config: LlamaConfig) -> dict[str, np.ndarray]:
    """Return the tensors of RoPE divisors that llama.cpp expects in the file."""
    scaling = RopeScaling.of(config.rope_scaling)
    if scaling is not None and scaling.kind == "longrope":
        return {there: np.array(getattr(scaling, own), np.float32) for own, there in _LONG.items()}
    if scaling is None or scaling.kind not in ("llama3", "table"):
        return {}
    dims = config.rope_dims or config.head_dim
    divisors = scaling.divisors(dims, config.rope_theta, config.context)
    return {_DIVISORS: divisors.astype(np.float32)}


def scaling_keys(config: LlamaConfig) -> dict[str, Any]:
    """Return the scaling of positions, for llama.cpp and whole for ourselves."""
    scaling = RopeScaling.of(config.rope_scaling)
    if scaling is None:
        return {}
    fields = {key: value for key, value in vars(scaling).items() if value is not None}
    keys: dict[str, Any] = {_SCALING_KEY: json.dumps(fields)}
    prefix = f"{config.family}.rope.scaling"
    if scaling.kind == "longrope":
        if config.family != "phi3":  # whose files have the factors, and no type
            keys[f"{prefix}.type"] = scaling.kind
        keys[f"{prefix}.original_context_length"] = u32(int(scaling.original or 0))
        keys[f"{prefix}.attn_factor"] = f32(scaling.score_factor**0.5)
    if scaling.kind in ("linear", "yarn"):
        keys[f"{prefix}.type"] = scaling.kind
        keys[f"{prefix}.factor"] = f32(scaling.factor)
        if scaling.original is not None:
            keys[f"{prefix}.original_context_length"] = u32(int(scaling.original))
    if scaling.kind == "yarn":
        keys[f"{prefix}.yarn_beta_fast"] = f32(scaling.beta_fast)
        keys[f"{prefix}.yarn_beta_slow"] = f32(scaling.beta_slow)
        # llama.cpp multiplies its own 0.1 ln(factor) + 1 by this.
        usual = RopeScaling("yarn", scaling.factor, scaling.original).score_factor
        keys[f"{prefix}.attn_factor"] = f32((scaling.score_factor / usual) ** 0.5)
    return keys


def _read_long(file: GGUFFile, arch: str, dims: int) -> RopeScaling:
    """Read the two sets of divisors of "longrope"."""
    tables: dict[str, Any] = {}
    for own, name in _LONG.items():
        check_tensor(file, name, (dims // 2,))
        table = np.asarray(file.array(name, dequantise=True), np.float32)
        tables[own] = tuple(float(str(number)) for number in table)
    keys = {"original": "rope.scaling.original_context_length", "context": "context_length"}
    sizes = read_sizes(file, arch, keys)
    factor = max(sizes["context"] / sizes["original"], 1.0)
    attention = read_number(file, f"{arch}.rope.scaling.attn_factor", 1.0)
    return RopeScaling("longrope", factor, sizes["original"], attention=attention, **tables)


def read_scaling(file: GGUFFile, arch: str, head_dim: int, context: int) -> RopeScaling | None:
    """Read how positions are stretched; a file that does not name the kind has llama.cpp's."""
    text = read_scalar(file, _SCALING_KEY)
    try:
        if text is not None:
            return RopeScaling.of(json.loads(text))
        if any(name in file.tensors for name in _LONG.values()):
            return _read_long(file, arch, head_dim)
        if _DIVISORS in file.tensors:
            check_tensor(file, _DIVISORS, (head_dim // 2,))
            table = np.asarray(file.array(_DIVISORS, dequantise=True), np.float32)
            return RopeScaling("table", 1.0, table=tuple(map(float, table)))
        prefix = f"{arch}.rope.scaling"
        kind = read_scalar(file, f"{prefix}.type", "linear")
        keys = (f"{prefix}.factor", f"{arch}.rope.scale_linear")  # the older name
        key = next((name for name in keys if read_scalar(file, name)), None)
        if kind == "none" or (kind == "linear" and key is None):
            return None
        factor = read_number(file, key or keys[0])
        if kind != "yarn":
            original = read_scalar(file, f"{prefix}.original_context_length")
            return (
                None if factor == 1.0 and kind == "linear" else RopeScaling(kind, factor, original)
            )
        # llama.cpp leaves out yarn_beta_fast and yarn_beta_slow for these families.
        usual = RopeScaling("yarn", factor, 1).score_factor ** 0.5
        attention = usual * read_number(file, f"{prefix}.attn_factor", 1.0)
        original = read_scalar(file, f"{prefix}.original_context_length", context)
        return RopeScaling("yarn", factor, original, attention=attention)
    except (TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{file.path}: {arch}.rope.scaling: {error}") from error
