# SPDX-License-Identifier: MIT
"""The table of transformers' decoders that a `Llama` is: names and defaults of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SIZES", "TYPES", "HFType"]

# Own fields that all types have, to the keys of config.json.
SIZES = {
    "vocab_size": "vocab_size",
    "context": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_ffn": "intermediate_size",
}


@dataclass(frozen=True)
class HFType:
    """The differences of a `model_type` of transformers from the family.

    Args:
        family: a key of `FAMILIES`.
        architecture: transformers' class.
        n_kv_head: default of the heads of keys and values; None is as many as of queries.
        n_head_dim: default width of a head; None is n_embd / n_head.
        eps: key of the norms' eps.
        eps_default: its default.
        tie: default of `tie_word_embeddings`.
        theta: default base of the rotary positions.
        partial: default share of a head that turns.
        window: "none", "all" layers where `sliding_window` is a number, "flag" where
            `use_sliding_window` says so, or "layers" by `layer_types`.
        width: default of `sliding_window`.
        fields: further own fields, to their keys; null is the family's value.
        experts: own fields of a mixture, to their keys.
        only: keys of what is computed in one way only, to the values that mean it; the first is
            the default.
        needed: keys of `only` that transformers takes for another value where they are missing.
    """

    family: str
    architecture: str
    n_kv_head: int | None = None
    n_head_dim: int | None = None
    eps: str = "rms_norm_eps"
    eps_default: float = 1e-6
    tie: bool = False
    theta: float = 10000.0
    partial: float = 1.0
    window: str = "none"
    width: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    experts: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    needed: tuple[str, ...] = ()


_SILU = {"hidden_act": ("silu", "swish")}
_TANH = {"hidden_activation": ("gelu_pytorch_tanh",), "use_bidirectional_attention": (False,)}
_BIASES = {"attention_bias": "attention_bias", "mlp_bias": "mlp_bias"}
_NO_BIAS = {"attention_bias": (False,)}
_CAPS = {"attention_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"}
_QWEN_MOE = {
    "n_expert_used": "num_experts_per_tok",
    "n_expert_ffn": "moe_intermediate_size",
}
_ALL_SPARSE = {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}

# By transformers' model_type; of several of one family, the first that can say it is written.
TYPES: dict[str, HFType] = {
    "llama": HFType(
        "llama", "LlamaForCausalLM", fields=_BIASES, only={**_SILU, "pretraining_tp": (1,)}
    ),
    "mistral": HFType("llama", "MistralForCausalLM", 8, window="all", width=4096, only=_SILU),
    "mixtral": HFType(
        "llama",
        "MixtralForCausalLM",
        8,
        eps_default=1e-5,
        theta=1e6,
        window="all",
        experts={"n_expert": "num_local_experts", "n_expert_used": "num_experts_per_tok"},
        only=_SILU,
    ),
    "qwen2": HFType("qwen2", "Qwen2ForCausalLM", 32, window="flag", width=4096, only=_SILU),
    "qwen3": HFType(
        "qwen3", "Qwen3ForCausalLM", 32, 128, window="flag", width=4096,
        only={**_SILU, **_NO_BIAS},
    ),
    "gemma": HFType(
        "gemma", "GemmaForCausalLM", 16, 256, tie=True,
        only={**_NO_BIAS, "use_bidirectional_attention": (False,)},
    ),
    "gemma2": HFType(
        "gemma2", "Gemma2ForCausalLM", 4, 256, tie=True, window="layers", width=4096,
        fields=_CAPS, only={**_TANH, **_NO_BIAS},
    ),
    "gemma3_text": HFType(
        "gemma3", "Gemma3ForCausalLM", 4, 256, tie=True, theta=1e6, window="layers",
        width=4096,
        fields={"logit_softcap": "final_logit_softcapping"},
        only={**_TANH, **_NO_BIAS, "attn_logit_softcapping": (None,)},
    ),
    "phi": HFType(
        "phi2", "PhiForCausalLM", eps="layer_norm_eps", eps_default=1e-5, partial=0.5,
        only={"hidden_act": ("gelu_new", "gelu_pytorch_tanh"), "qk_layernorm": (False,)},
    ),
    "phi3": HFType("phi3", "Phi3ForCausalLM", eps_default=1e-5, window="all", only=_SILU),
    "olmo2": HFType("olmo2", "Olmo2ForCausalLM", eps_default=1e-5, only={**_SILU, **_NO_BIAS}),
    "olmo3": HFType(
        "olmo2", "Olmo3ForCausalLM", eps_default=1e-5, theta=5e5, window="layers", width=4096,
        only={**_SILU, **_NO_BIAS},
    ),
    "granite": HFType(
        "granite", "GraniteForCausalLM",
        fields={
            **_BIASES,
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "attention_scale": "attention_multiplier",
            "logit_scale": "logits_scaling",
        },
        only=_SILU,
    ),
    "smollm3": HFType(
        "smollm3", "SmolLM3ForCausalLM", 4, tie=True, theta=2e6, window="flag", fields=_BIASES,
        only=_SILU,
    ),
    "starcoder2": HFType(
        "starcoder2", "Starcoder2ForCausalLM", 2, eps="norm_epsilon", eps_default=1e-5, tie=True,
        window="all", only={"hidden_act": ("gelu_pytorch_tanh",), "use_bias": (True,)},
    ),
    "stablelm": HFType(
        "stablelm", "StableLmForCausalLM", eps="layer_norm_eps", eps_default=1e-5, partial=0.25,
        fields={
            "attention_bias": "use_qkv_bias",
            "qk_norm": "qk_layernorm",
            "parallel": "use_parallel_residual",
        },
        only=_SILU,
    ),
    "gpt_oss": HFType(
        "gpt-oss", "GptOssForCausalLM", 8, 64, eps_default=1e-5, theta=150000.0, window="layers",
        width=128,
        experts={"n_expert": "num_local_experts", "n_expert_used": "num_experts_per_tok"},
        only={
            **_SILU,
            "attention_bias": (True,),
            "swiglu_alpha": (1.702,),
            "swiglu_limit": (7.0,),
        },
    ),
    "qwen2_moe": HFType(
        "qwen2moe", "Qwen2MoeForCausalLM", 16, window="flag", width=4096,
        experts={
            "n_expert": "num_experts", **_QWEN_MOE,
            "n_shared_ffn": "shared_expert_intermediate_size",
        },
        only={**_SILU, **_ALL_SPARSE, "qkv_bias": (True,), "norm_topk_prob": (False,)},
    ),
    "qwen3_moe": HFType(
        "qwen3moe", "Qwen3MoeForCausalLM", 4, window="flag", width=4096,
        experts={"n_expert": "num_experts", **_QWEN_MOE},
        only={**_SILU, **_NO_BIAS, **_ALL_SPARSE, "norm_topk_prob": (True,)},
        needed=("norm_topk_prob",),
    ),
}  # fmt: skip
