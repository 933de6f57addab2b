# SPDX-License-Identifier: MIT
"""The Llama family in GGUF files: llama.cpp's keys, names and layouts."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ...errors import FormatError
from ...io import GGUFFile, f32, u32
from ..files import (
    check_block_count,
    check_tensor,
    read_number,
    read_scalar,
    read_sizes,
    read_tie,
    read_vocab_size,
)
from ..pooling import POOLINGS
from .config import LlamaConfig
from .families import FAMILIES, Family
from .stretched import read_scaling, scaling_keys

__all__ = [
    "GGUF_NAMES",
    "check_gguf",
    "gguf_config",
    "gguf_layout",
    "read_gguf_config",
]

_LAYER = "model.layers.{i}"
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    f"{_LAYER}.input_layernorm": "blk.{i}.attn_norm",
    f"{_LAYER}.self_attn.q_proj": "blk.{i}.attn_q",
    f"{_LAYER}.self_attn.k_proj": "blk.{i}.attn_k",
    f"{_LAYER}.self_attn.v_proj": "blk.{i}.attn_v",
    f"{_LAYER}.self_attn.qkv_proj": "blk.{i}.attn_qkv",
    f"{_LAYER}.self_attn.sinks": "blk.{i}.attn_sinks.weight",
    f"{_LAYER}.self_attn.o_proj": "blk.{i}.attn_output",
    f"{_LAYER}.self_attn.q_norm": "blk.{i}.attn_q_norm",
    f"{_LAYER}.self_attn.k_norm": "blk.{i}.attn_k_norm",
    f"{_LAYER}.post_attention_layernorm": "blk.{i}.ffn_norm",
    f"{_LAYER}.mlp.gate_proj": "blk.{i}.ffn_gate",
    f"{_LAYER}.mlp.up_proj": "blk.{i}.ffn_up",
    f"{_LAYER}.mlp.gate_up_proj": "blk.{i}.ffn_up",
    f"{_LAYER}.mlp.down_proj": "blk.{i}.ffn_down",
    f"{_LAYER}.mlp.c_fc": "blk.{i}.ffn_up",
    f"{_LAYER}.mlp.c_proj": "blk.{i}.ffn_down",
    **{
        f"{_LAYER}.{part}.{own}": f"blk.{{i}}.{name}"
        for part in ("block_sparse_moe", "mlp")
        for own, name in {
            "gate": "ffn_gate_inp",
            "experts.gate_proj": "ffn_gate_exps",
            "experts.up_proj": "ffn_up_exps",
            "experts.down_proj": "ffn_down_exps",
            "shared_expert.gate_proj": "ffn_gate_shexp",
            "shared_expert.up_proj": "ffn_up_shexp",
            "shared_expert.down_proj": "ffn_down_shexp",
            "shared_expert_gate": "ffn_gate_inp_shexp",
        }.items()
    },
    "model.norm": "output_norm",
    "lm_head": "output",
}
# The window of our own files; see `Model.OWN_FIELDS`.
_WINDOW_KEY = "pyggml.window"
_log = logging.getLogger("pyggml.models")
# Numbers of the configuration that some families have.
_NUMBERS = {
    "rope_theta_window": "rope.freq_base_swa",
    "embedding_scale": "embedding_scale",
    "residual_scale": "residual_scale",
    "attention_scale": "attention.scale",
    "logit_scale": "logit_scale",
    "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping",
}
_WINDOW = "attention.sliding_window"
_PATTERN = f"{_WINDOW}_pattern"


def gguf_layout(config: LlamaConfig, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
    """Turn a parameter's layout into llama.cpp's, or back when `reading`."""
    *_, module, _kind = name.split(".")
    if module == "shared_expert_gate":
        return array.reshape(-1)  # its one row
    if config.traits.offset and module.endswith(("layernorm", "norm")):
        return np.asarray(array - 1 if reading else array + 1, np.float32)
    heads = {"q_proj": config.n_head, "k_proj": config.kv_head}.get(module)
    if heads is None or not config.traits.neighbours:
        return array
    # llama.cpp rotates neighbours, Hugging Face halves.
    half = array.shape[0] // heads // 2
    split = (heads, half, 2) if reading else (heads, 2, half)
    turned = array.reshape(*split, -1).swapaxes(1, 2)
    return np.ascontiguousarray(turned.reshape(array.shape))


def gguf_config(config: LlamaConfig) -> dict[str, Any]:
    """Return the hyper-parameters under llama.cpp's keys."""
    keys: dict[str, Any] = {
        "block_count": u32(config.n_layer),
        "context_length": u32(config.context),
        "embedding_length": u32(config.n_embd),
        "feed_forward_length": u32(config.ffn),
        "attention.head_count": u32(config.n_head),
        "attention.head_count_kv": u32(config.kv_head),
        _eps_key(config.traits): f32(config.eps),
        "rope.freq_base": f32(config.rope_theta),
        "rope.dimension_count": u32(config.rope_dims or config.head_dim),
        "vocab_size": u32(config.vocab_size),
    }
    if config.n_head_dim is not None:
        keys["attention.key_length"] = u32(config.head_dim)
        keys["attention.value_length"] = u32(config.head_dim)
    if config.window is not None:
        keys[_WINDOW] = u32(config.window)
        if config.pattern != config.traits.values.get("window_pattern", 1):
            keys[_PATTERN] = u32(0 if config.pattern == 1 else config.pattern)
    for name, key in _NUMBERS.items():
        own = name in config.traits.free or name in config.traits.values
        if own and getattr(config, name):
            keys[key] = f32(getattr(config, name))
    if config.pooling is not None:
        keys["pooling_type"] = u32(1 + POOLINGS.index(config.pooling))
    if "parallel" in config.traits.free:
        keys["use_parallel_residual"] = bool(config.parallel)
    if config.n_expert:
        keys["expert_count"] = u32(config.n_expert)
        keys["expert_used_count"] = u32(config.n_expert_used)
        if config.family != "llama":  # whose experts are as wide as n_ffn
            keys["expert_feed_forward_length"] = u32(config.expert_ffn)
        if config.shared_ffn:
            keys["expert_shared_feed_forward_length"] = u32(config.shared_ffn)
    named = {f"{config.family}.{key}": value for key, value in keys.items()}
    return {**named, **scaling_keys(config)}


def read_gguf_config(file: GGUFFile) -> dict[str, Any]:
    """Read the fields of a configuration from a GGUF file's metadata.

    Raises:
        FormatError: a field is missing, or asks for what the model does not do.
    """
    arch = file.metadata["general.architecture"]
    traits = FAMILIES[arch]
    fields: dict[str, Any] = read_sizes(
        file,
        arch,
        {
            "n_layer": "block_count",
            "context": "context_length",
            "n_embd": "embedding_length",
            "n_ffn": "feed_forward_length",
            "n_head": "attention.head_count",
        },
    )
    fields["n_kv_head"] = fields["n_head"]
    optional = {
        "n_kv_head": "attention.head_count_kv",
        "n_head_dim": "attention.key_length",
        "n_expert_ffn": "expert_feed_forward_length",
        "n_shared_ffn": "expert_shared_feed_forward_length",
    }
    if read_scalar(file, f"{arch}.expert_count"):
        needed = {"n_expert": "expert_count", "n_expert_used": "expert_used_count"}
        fields |= read_sizes(file, arch, needed)
        if arch != "llama":  # what llama.cpp takes where the key is absent
            fields["n_expert_ffn"] = max(1, fields["n_ffn"] // fields["n_expert_used"])
    if traits.windowed:
        optional["window"] = _WINDOW
    for field, key in optional.items():
        if read_scalar(file, f"{arch}.{key}", 0) != 0:
            fields |= read_sizes(file, arch, {field: key})
    head_dim = fields.get("n_head_dim", fields["n_embd"] // fields["n_head"])
    _check_variants(file, arch, head_dim)
    fields |= _read_choices(file, arch)
    turned = fields.get("rope_dims", head_dim)
    if not traits.windowed:
        _tell_window(file, arch, fields["context"])
    return {
        **fields,
        "family": arch,
        "vocab_size": read_vocab_size(file),
        "eps": read_number(file, f"{arch}.{_eps_key(traits)}"),
        "rope_theta": read_number(file, f"{arch}.rope.freq_base", default=10000.0),
        "rope_scaling": read_scaling(file, arch, turned, fields["context"]),
        "tie": read_tie(file),
    }


def _tell_window(file: GGUFFile, arch: str, context: int) -> None:
    """Log that a window of the file is left out, as in llama.cpp, unless it is of our own file."""
    key = f"{arch}.{_WINDOW}"
    window = file.metadata.get(key)
    if isinstance(window, int) and 0 < window < context and _WINDOW_KEY not in file.metadata:
        _log.warning(
            "%s: %s = %d: left out, as llama.cpp leaves it out for %s", file.path, key, window, arch
        )


def _eps_key(traits: Family) -> str:
    """The key of the norms' eps."""
    kind = "layer_norm" if traits.norm == "layer" else "layer_norm_rms"
    return f"attention.{kind}_epsilon"


def _read_choices(file: GGUFFile, arch: str) -> dict[str, Any]:
    """Read the fields in which members of a family differ, from keys and from what is there."""
    traits = FAMILIES[arch]
    fields: dict[str, Any] = {
        name: read_number(file, f"{arch}.{key}")
        for name, key in _NUMBERS.items()
        if f"{arch}.{key}" in file.metadata
    }
    there = {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors
        and ("blk.0.attn_output.bias" in file.tensors or "qkv"),
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "qk_norm": "blk.0.attn_q_norm.weight" in file.tensors,
        "parallel": "blk.0.ffn_norm.weight" not in file.tensors,
    }
    fields |= {name: value for name, value in there.items() if name in traits.free}
    pooling = file.metadata.get(f"{arch}.pooling_type")
    if isinstance(pooling, int) and 1 <= pooling <= len(POOLINGS):
        fields["pooling"] = POOLINGS[pooling - 1]
    turned = f"{arch}.rope.dimension_count"
    if "rope_dims" in traits.free and turned in file.metadata:
        fields |= read_sizes(file, arch, {"rope_dims": "rope.dimension_count"})
    if f"{arch}.{_PATTERN}" in file.metadata:
        fields |= _read_pattern(file, f"{arch}.{_PATTERN}")
    return fields


def _read_pattern(file: GGUFFile, key: str) -> dict[str, Any]:
    """Read which layers have a window: a number, or true and false for each layer."""
    value = file.metadata[key]
    layers = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(layers, list):
        if not any(layers):
            return {"window": None}
        for pattern in range(2, len(layers) + 2):
            if [bool(x) for x in layers] == [(i + 1) % pattern > 0 for i in range(len(layers))]:
                return {"window_pattern": 1 if pattern > len(layers) else pattern}
    elif not isinstance(value, bool) and isinstance(value, int) and value >= 0:
        return {"window": None} if value == 1 else {"window_pattern": value or 1}
    raise FormatError(
        f"{file.path}: {key} must say that every so many layers one has no window; got {value!r}"
    )


def check_gguf(file: GGUFFile, config: LlamaConfig) -> None:
    """Compare the metadata with the tensors, before memory is allocated."""
    check_block_count(file, config.n_layer)
    check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
    inner = config.n_head * config.head_dim
    if config.traits.fused:
        both = 2 * config.kv_head * config.head_dim
        check_tensor(file, "blk.0.attn_qkv.weight", (inner + both, config.n_embd))
    else:
        check_tensor(file, "blk.0.attn_q.weight", (inner, config.n_embd))
    if config.n_expert:
        shape = (config.n_expert, config.expert_ffn, config.n_embd)
        check_tensor(file, "blk.0.ffn_up_exps.weight", shape)
    else:
        rows = (2 if config.traits.fused else 1) * config.ffn
        check_tensor(file, "blk.0.ffn_up.weight", (rows, config.n_embd))


def _check_variants(file: GGUFFile, arch: str, head_dim: int) -> None:
    """Raise a FormatError for what llama.cpp's architecture also covers and this model does not."""
    traits = FAMILIES[arch]
    partial = {} if "rope_dims" in traits.free else {f"{arch}.rope.dimension_count": head_dim}
    plain: dict[str, Any] = {
        **partial,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.expert_weights_norm": traits.normalize,
        # softmax, of all experts or of the chosen ones, which is the same where they sum to one
        f"{arch}.expert_gating_func": 1,
    }
    for key, value in plain.items():
        got = read_scalar(file, key, value)
        if got != value:
            raise FormatError(
                f"{file.path}: {key} must be {value!r} or absent, other {arch} variants are not "
                f"supported; got {got!r}"
            )
