# SPDX-License-Identifier: MIT
"""BERT's configuration in transformers' `config.json`, and the pooling of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..pretrained.fields import HFConfig, read_json
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
_POOLING = Path("1_Pooling") / "config.json"


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
    names = given.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    wanted = [str(i) for i in range(len(names))] if isinstance(names, dict) else []
    if not wanted or sorted(map(str, names)) != sorted(wanted):
        raise given.error("id2label", "names by the numbers from 0 on")
    labels = {str(number): name for number, name in names.items()}
    fields["classes"] = len(wanted)
    if any(labels[i] != f"LABEL_{i}" for i in wanted):
        fields["labels"] = tuple(labels[i] for i in wanted)
    fields["pooling"] = _read_pooling(Path(given.path).parent / _POOLING)
    return BERTConfig(**fields)


def _read_pooling(file: Path) -> str:
    """Read how sentence-transformers makes one vector of a text; without a word, the mean."""
    if not file.is_file():
        return "mean"
    given = HFConfig(file, read_json(file))
    if given.flag("pooling_mode_cls_token", False):
        return "cls"
    given.only("pooling_mode_mean_tokens", True)
    return "mean"


def write_hf_config(config: BERTConfig, architecture: str) -> dict[str, Any]:
    """Return the fields of a `config.json`."""
    labels = config.labels or [f"LABEL_{i}" for i in range(config.classes)]
    return {
        "model_type": "bert",
        "architectures": [architecture],
        **{key: getattr(config, own) for own, key in _SIZES.items()},
        **{key: values[0] for key, values in _ONLY.items()},
        "type_vocab_size": config.types,
        "layer_norm_eps": config.eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
