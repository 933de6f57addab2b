# SPDX-License-Identifier: MIT
"""The table of the family: what each member does differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FAMILIES", "NEUTRAL", "Family"]

# Fields of the configuration that most members have at these values.
NEUTRAL: dict[str, Any] = {
    "attention_bias": False,
    "mlp_bias": False,
    "qk_norm": False,
    "parallel": False,
    "rope_dims": None,
    "rope_theta_window": None,
    "window_pattern": 1,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "attention_scale": None,
    "logit_scale": 1.0,
    "attention_softcap": 0.0,
    "logit_softcap": 0.0,
}

# Where a norm stands, and what llama.cpp calls it.
_AFTER = {
    "model.layers.{i}.post_attention_layernorm": "blk.{i}.post_attention_norm",
    "model.layers.{i}.post_feedforward_layernorm": "blk.{i}.post_ffw_norm",
}


@dataclass(frozen=True)
class Family:
    """The differences of a member of the family.

    Args:
        norm: "rms", or "layer" with a bias.
        norms: where each half of a block has one: "before", "after" or "both".
        offset: the norms' scale is 1 + weight.
        mlp: the feed-forward part: "swiglu", "geglu" or "gelu", which is not gated.
        fused: q, k and v are one matrix, and so are gate and up.
        qk_norm: which norm queries and keys have where they have one: "head" is an RMS norm for
            every head, "all" one over all heads at once, "each" a layer norm for each head.
        scaled: the embeddings are multiplied by sqrt(n_embd).
        no_rope: every so many layers one has no rotary positions; 0 is none.
        window_scaling: the rotary positions of layers with a window are stretched, too.
        narrow: with so many layers scores are divided by sqrt(n_embd / n_head), whatever the head
            size: so llama.cpp knows the 27B.
        any_head: n_head_dim may be another than n_embd / n_head.
        sinks: attention has a learned score for each head that gives nothing.
        experts: whether there are: "may", "must" or "none".
        shared: one expert sees all tokens.
        normalize: the probabilities of the chosen experts are made to sum to one.
        clamped: experts and router have biases, and the activation is gpt-oss's.
        windowed: llama.cpp has its window; for other members it leaves a file's out.
        copied_head: llama.cpp asks for a head in the file, of tied models too.
        neighbours: llama.cpp rotates pairs of neighbours: the file's rows are in another order.
        values: fields of the configuration that are not at `NEUTRAL`.
        free: fields of `NEUTRAL` that a configuration may set.
        names: own names to the file's where they are not those of most members.
        renamed: parts of own paths to Hugging Face's where they are not those of most members.
        head_bias: the head has a bias, and is not the embedding table.
    """

    norm: str = "rms"
    norms: str = "before"
    offset: bool = False
    mlp: str = "swiglu"
    fused: bool = False
    qk_norm: str = "head"
    scaled: bool = False
    no_rope: int = 0
    window_scaling: bool = True
    narrow: int = 0
    any_head: bool = True
    sinks: bool = False
    experts: str = "none"
    shared: bool = False
    normalize: bool = True
    clamped: bool = False
    windowed: bool = False
    copied_head: bool = False
    neighbours: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    head_bias: bool = False


_BIASES = ("attention_bias", "mlp_bias")
_GEMMA: dict[str, Any] = {"mlp": "geglu", "offset": True, "scaled": True}
_GEMMA_2: dict[str, Any] = {
    **_GEMMA,
    "norms": "both",
    "windowed": True,
    "names": {**_AFTER, "model.layers.{i}.pre_feedforward_layernorm": "blk.{i}.ffn_norm"},
}

# By llama.cpp's name of the architecture.
FAMILIES: dict[str, Family] = {
    "llama": Family(experts="may", neighbours=True, free=_BIASES),
    "qwen2": Family(values={"attention_bias": "qkv"}),
    "qwen3": Family(values={"qk_norm": True}),
    "gemma": Family(**_GEMMA),
    "gemma2": Family(
        **_GEMMA_2,
        narrow=46,
        values={
            **{"window": 4096, "window_pattern": 2},
            **{"attention_softcap": 50.0, "logit_softcap": 30.0},
        },
        free=("window_pattern", "attention_softcap", "logit_softcap"),
    ),
    "gemma3": Family(
        **_GEMMA_2,
        narrow=62,
        window_scaling=False,
        values={"qk_norm": True, "window_pattern": 6, "rope_theta_window": 10000.0},
        free=("window_pattern", "rope_theta_window", "logit_softcap"),
    ),
    "phi2": Family(
        norm="layer",
        mlp="gelu",
        any_head=False,
        head_bias=True,
        values={"attention_bias": True, "mlp_bias": True, "parallel": True},
        free=("rope_dims",),
        renamed={
            ".self_attn.o_proj.": ".self_attn.dense.",
            ".mlp.c_fc.": ".mlp.fc1.",
            ".mlp.c_proj.": ".mlp.fc2.",
            "model.norm.": "model.final_layernorm.",
        },
    ),
    "phi3": Family(fused=True, any_head=False, free=("rope_dims",)),
    "olmo2": Family(
        norms="after",
        windowed=True,
        copied_head=True,
        qk_norm="all",
        any_head=False,
        window_scaling=False,
        values={"qk_norm": True, "window_pattern": 4},
        free=("window_pattern",),
        names=_AFTER,
    ),
    "granite": Family(
        neighbours=True,
        any_head=False,
        free=(*_BIASES, "embedding_scale", "residual_scale", "attention_scale", "logit_scale"),
    ),
    "smollm3": Family(neighbours=True, no_rope=4, free=_BIASES),
    "starcoder2": Family(
        norm="layer",
        mlp="gelu",
        any_head=False,
        values={"attention_bias": True, "mlp_bias": True},
    ),
    "stablelm": Family(
        norm="layer",
        qk_norm="each",
        copied_head=True,
        any_head=False,
        free=("attention_bias", "rope_dims", "qk_norm", "parallel"),
    ),
    "gpt-oss": Family(
        experts="must",
        clamped=True,
        sinks=True,
        windowed=True,
        copied_head=True,
        values={"attention_bias": True, "window": 128, "window_pattern": 2},
        free=("window_pattern",),
        names={"model.layers.{i}.post_attention_layernorm": "blk.{i}.post_attention_norm"},
    ),
    "qwen2moe": Family(
        experts="must",
        shared=True,
        normalize=False,
        copied_head=True,
        values={"attention_bias": "qkv"},
    ),
    "qwen3moe": Family(experts="must", values={"qk_norm": True}),
}
