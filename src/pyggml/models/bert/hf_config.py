# SPDX-License-Identifier: MIT
"""BERT's configuration in transformers' `config.json`, and the pooling of sentence-transformers."""

from __future__ import annotations

from typing import Any

from ..pretrained.fields import HFConfig
from ..pretrained.labels import read_labels, write_labels
from ..pretrained.sentences import read_pooling
from .config import BERTConfig

__all__ = ["read_hf_config", "write_hf_config"]

_SIZES = {
    "vocab_size": "vocab_size",
    "context": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_ffn": "intermediate_size",
}
_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
}


def read_hf_config(given: HFConfig) -> BERTConfig:
    """Read the configuration.

    Raises:
        FormatError: a field is missing, or asks for what the model does not do.
    """
    for key, values in _ONLY.items():
        given.only(key, *values)
    fields: dict[str, Any] = {own: given.size(key) for own, key in _SIZES.items()}
    fields["types"] = given.size("type_vocab_size", 2)
    fields["eps"] = given.number("layer_norm_eps", 1e-12)
    fields["dropout"] = given.number("hidden_dropout_prob", 0.1)
    fields["pooling"] = read_pooling(given)
    return BERTConfig(**fields, **read_labels(given))


def write_hf_config(config: BERTConfig, architecture: str) -> dict[str, Any]:
    """Return the fields of a `config.json`."""
    return {
        "model_type": "bert",
        "architectures": [architecture],
        **{key: getattr(config, own) for own, key in _SIZES.items()},
        **{key: values[0] for key, values in _ONLY.items()},
        "type_vocab_size": config.types,
        "layer_norm_eps": config.eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        **write_labels(config),
    }
