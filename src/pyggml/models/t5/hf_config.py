# SPDX-License-Identifier: MIT
"""T5's configuration in transformers' `config.json`, both ways."""

from __future__ import annotations

from typing import Any

from ..pretrained.fields import HFConfig
from .config import T5Config

__all__ = ["read_hf_config", "write_hf_config"]

_SIZES = {
    "vocab_size": "vocab_size",
    "n_embd": "d_model",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_head_dim": "d_kv",
    "n_ffn": "d_ff",
}
_FORWARD = {False: "relu", True: "gated-gelu"}


def read_hf_config(given: HFConfig) -> T5Config:
    """Read the configuration.

    Raises:
        FormatError: a field is missing, or asks for what the model does not do.
    """
    fields: dict[str, Any] = {own: given.size(key) for own, key in _SIZES.items()}
    fields["n_decoder"] = given.size("num_decoder_layers", fields["n_layer"])
    fields["context"] = given.size("n_positions", 512)
    fields["buckets"] = given.size("relative_attention_num_buckets", 32)
    fields["max_distance"] = given.size("relative_attention_max_distance", 128)
    fields["eps"] = given.number("layer_norm_epsilon", 1e-6)
    fields["dropout"] = given.number("dropout_rate", 0.1)
    # transformers 5 says of the scale what a tied head meant before, and reads the head's own.
    tie = given.flag("tie_word_embeddings", True)
    # Its null is false there.
    scaled = given.values.get("scale_decoder_outputs", tie) is not None
    fields["tie"] = scaled and given.flag("scale_decoder_outputs", tie)
    fields["gated"] = given.only("feed_forward_proj", *_FORWARD.values()) == _FORWARD[True]
    given.only("is_encoder_decoder", True)
    fields["start_id"] = given.size("decoder_start_token_id", 0, least=0)
    fields["eos_id"] = given.size("eos_token_id", 1, least=0)
    return T5Config(**fields)


def write_hf_config(config: T5Config) -> dict[str, Any]:
    """Return the fields of a `config.json`."""
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **{key: getattr(config, own) for own, key in _SIZES.items()},
        "num_decoder_layers": config.decoder_layers,
        "n_positions": config.context,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.max_distance,
        "layer_norm_epsilon": config.eps,
        "dropout_rate": config.dropout,
        "tie_word_embeddings": config.tie,
        "scale_decoder_outputs": config.tie,
        "feed_forward_proj": _FORWARD[config.gated],
        "decoder_start_token_id": config.start_id,
        "eos_token_id": config.eos_id,
        "pad_token_id": config.start_id,
    }
