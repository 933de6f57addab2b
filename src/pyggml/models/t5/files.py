# SPDX-License-Identifier: MIT
"""T5 in GGUF files: llama.cpp's names and keys."""

from __future__ import annotations

from typing import Any

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
from .config import T5Config

__all__ = ["SCALED", "check_gguf", "gguf_config", "gguf_name", "read_gguf_config"]

# llama.cpp leaves out the scale of a tied head, 1 / sqrt(n_embd). A file of ours has it in the
# decoder's last norm instead, which nothing else reads, and says so by this key.
SCALED = "pyggml.scaled_norm"

_TOP = {
    "shared.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "encoder.final_layer_norm.weight": "enc.output_norm.weight",
    "decoder.final_layer_norm.weight": "dec.output_norm.weight",
}
_HEADS = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_o"}
_PARTS = {
    "SelfAttention": {**_HEADS, "relative_attention_bias": "attn_rel_b"},
    "EncDecAttention": {key: f"cross_{name}" for key, name in _HEADS.items()},
    "DenseReluDense": {"wi": "ffn_up", "wi_0": "ffn_gate", "wi_1": "ffn_up", "wo": "ffn_down"},
}


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of an own parameter."""
    if name in _TOP:
        return _TOP[name]
    # encoder.block.0.layer.1.DenseReluDense.wi.weight, or …layer.1.layer_norm.weight
    side, _, number, _, part, *rest = name.split(".")
    prefix = f"{'enc' if side == 'encoder' else 'dec'}.blk.{number}."
    if rest[0] == "layer_norm":
        parts = ("attn", "cross_attn", "ffn") if side == "decoder" else ("attn", "ffn")
        return f"{prefix}{parts[int(part)]}_norm.weight"
    return f"{prefix}{_PARTS[rest[0]][rest[1]]}.weight"


def gguf_config(config: T5Config) -> dict[str, Any]:
    """Return the hyper-parameters under llama.cpp's keys."""
    keys: dict[str, Any] = {
        "t5.context_length": u32(config.context),
        "t5.embedding_length": u32(config.n_embd),
        "t5.feed_forward_length": u32(config.n_ffn),
        "t5.block_count": u32(config.n_layer),
        "t5.decoder_block_count": u32(config.decoder_layers),
        "t5.attention.head_count": u32(config.n_head),
        "t5.attention.key_length": u32(config.n_head_dim),
        "t5.attention.value_length": u32(config.n_head_dim),
        "t5.attention.layer_norm_epsilon": f32(config.eps),
        "t5.attention.layer_norm_rms_epsilon": f32(config.eps),
        "t5.attention.relative_buckets_count": u32(config.buckets),
        "t5.decoder_start_token_id": u32(config.start_id),
    }
    return {**keys, SCALED: True} if config.tie else keys


def read_gguf_config(file: GGUFFile) -> T5Config:
    """Read the configuration from a GGUF file's metadata.

    Raises:
        FormatError: a field is missing, or asks for what the model does not do.
    """
    sizes: dict[str, Any] = read_sizes(
        file,
        "t5",
        {
            "n_layer": "block_count",
            "context": "context_length",
            "n_embd": "embedding_length",
            "n_ffn": "feed_forward_length",
            "n_head": "attention.head_count",
            "n_head_dim": "attention.key_length",
            "buckets": "attention.relative_buckets_count",
        },
    )
    if "t5.decoder_block_count" in file.metadata:
        sizes |= read_sizes(file, "t5", {"n_decoder": "decoder_block_count"})
    width = read_scalar(file, "t5.attention.value_length", sizes["n_head_dim"])
    if width != sizes["n_head_dim"]:
        raise FormatError(
            f"{file.path}: t5.attention.value_length must be as key_length, "
            f"{sizes['n_head_dim']}; got {width!r}"
        )
    return T5Config(
        vocab_size=read_vocab_size(file),
        eps=read_number(file, "t5.attention.layer_norm_rms_epsilon"),
        gated="enc.blk.0.ffn_gate.weight" in file.tensors,
        tie=read_tie(file),
        start_id=read_scalar(file, "t5.decoder_start_token_id", 0),
        **sizes,
    )


def check_gguf(file: GGUFFile, config: T5Config) -> None:
    """Compare the metadata with the tensors, before memory is allocated."""
    check_block_count(file, config.n_layer, "enc.blk.")
    check_block_count(file, config.decoder_layers, "dec.blk.")
    check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
    check_tensor(file, "enc.blk.0.ffn_up.weight", (config.n_ffn, config.n_embd))
    inner = config.n_head * config.n_head_dim
    check_tensor(file, "enc.blk.0.attn_q.weight", (inner, config.n_embd))
