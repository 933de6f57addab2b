# SPDX-License-Identifier: MIT
"""ModernBERT's configuration in transformers' `config.json`, both ways."""

from __future__ import annotations

from typing import Any

from ..pretrained.fields import HFConfig
from ..pretrained.labels import read_labels, write_labels
from ..pretrained.sentences import read_pooling
from .config import ACTIVATIONS, ModernBERTConfig

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
    "norm_bias": (False,),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "decoder_bias": (True,),
    "classifier_bias": (False,),
    "classifier_activation": ("gelu",),
    "tie_word_embeddings": (True,),
}
_THETAS = {
    "rope_theta": ("full_attention", "global_rope_theta", 160000.0),
    "rope_theta_window": ("sliding_attention", "local_rope_theta", 10000.0),
}
_CLASSIFIER = "ModernBertForSequenceClassification"


def read_hf_config(given: HFConfig, architecture: str) -> ModernBERTConfig:
    """Read the configuration of one of transformers' classes.

    Raises:
        FormatError: a field is missing, or asks for what the model does not do.
    """
    for key, values in _ONLY.items():
        given.only(key, *values)
    fields: dict[str, Any] = {own: given.size(key) for own, key in _SIZES.items()}
    fields["eps"] = given.number("norm_eps", 1e-5)
    fields["activation"] = given.only("hidden_activation", *ACTIVATIONS)
    fields["window"] = given.size("local_attention", 128)
    every = given.size("global_attn_every_n_layers", 3)
    types = given.get("layer_types")
    if types is not None:
        full = [i for i, kind in enumerate(types) if kind == "full_attention"]
        every = full[1] if len(full) > 1 else max(every, len(types))
        if full != list(range(0, len(types), every)):
            raise given.error("layer_types", "full attention in every n-th layer from the first on")
    fields["window_pattern"] = every
    ropes = given.get("rope_parameters", {})
    for own, (kind, key, default) in _THETAS.items():
        rope = HFConfig(f"{given.path}: rope_parameters.{kind}", ropes.get(kind) or {})
        rope.only("rope_type", "default")
        fields[own] = rope.number("rope_theta", given.number(key, default))
    fields["dropout"] = given.number("embedding_dropout", 0.0)
    classifies = architecture == _CLASSIFIER
    fields["pooling"] = (
        given.only("classifier_pooling", "cls", "mean") if classifies else read_pooling(given)
    )
    return ModernBERTConfig(**fields, **read_labels(given))


def write_hf_config(config: ModernBERTConfig, architecture: str) -> dict[str, Any]:
    """Return the fields of a `config.json`, under keys that transformers 4 and 5 read."""
    layers = range(config.n_layer)
    kinds = ("full_attention", "sliding_attention")
    classifies = architecture == _CLASSIFIER
    return {
        "model_type": "modernbert",
        "architectures": [architecture],
        **{key: getattr(config, own) for own, key in _SIZES.items()},
        **{key: values[0] for key, values in _ONLY.items()},
        "norm_eps": config.eps,
        "hidden_activation": config.activation,
        "local_attention": config.window,
        "global_attn_every_n_layers": config.window_pattern,
        "layer_types": [kinds[i % config.window_pattern != 0] for i in layers],
        **{key: getattr(config, own) for own, (_, key, _) in _THETAS.items()},
        **dict.fromkeys(("embedding_dropout", "mlp_dropout"), config.dropout),
        "attention_dropout": 0.0,
        "classifier_dropout": config.dropout,
        "classifier_pooling": config.pooling if classifies else "cls",
        **write_labels(config),
    }
