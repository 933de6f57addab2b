# SPDX-License-Identifier: MIT
"""Named sizes of the Llama family, as their publishers' config.json has them."""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS"]


def _llama3(factor: float) -> dict[str, Any]:
    """Scaling by which Llama 3.1 and 3.2 stretch the 8,192 tokens of Llama 3."""
    return {"kind": "llama3", "factor": factor, "original": 8192}


_OWN: dict[str, dict[str, Any]] = {
    "tiny": {"context": 128, "n_embd": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 2},
    "small": {"context": 256, "n_embd": 256, "n_layer": 6, "n_head": 8, "n_kv_head": 4},
    "tiny-moe": {
        "context": 128, "n_embd": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 2, "n_ffn": 256,
        "n_expert": 4, "router_aux": 0.02,
    },
}  # fmt: skip

_LLAMA: dict[str, dict[str, Any]] = {
    "stories15m": {
        "vocab_size": 32000, "context": 256, "n_embd": 288, "n_layer": 6, "n_head": 6,
        "n_ffn": 768,
    },
    "stories110m": {
        "vocab_size": 32000, "context": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_ffn": 2048,
    },
    "tinyllama-1.1b": {
        "vocab_size": 32000, "context": 2048, "n_embd": 2048, "n_layer": 22, "n_head": 32,
        "n_kv_head": 4, "n_ffn": 5632, "tie": False,
    },
    "llama-2-7b": {
        "vocab_size": 32000, "context": 4096, "n_embd": 4096, "n_layer": 32, "n_head": 32,
        "n_ffn": 11008, "tie": False,
    },
    "llama-2-13b": {
        "vocab_size": 32000, "context": 4096, "n_embd": 5120, "n_layer": 40, "n_head": 40,
        "n_ffn": 13824, "tie": False,
    },
    "llama-2-70b": {
        "vocab_size": 32000, "context": 4096, "n_embd": 8192, "n_layer": 80, "n_head": 64,
        "n_kv_head": 8, "n_ffn": 28672, "tie": False,
    },
    "llama-3-8b": {
        "vocab_size": 128256, "context": 8192, "n_embd": 4096, "n_layer": 32, "n_head": 32,
        "n_kv_head": 8, "n_ffn": 14336, "rope_theta": 500000.0, "tie": False,
    },
    "llama-3-70b": {
        "vocab_size": 128256, "context": 8192, "n_embd": 8192, "n_layer": 80, "n_head": 64,
        "n_kv_head": 8, "n_ffn": 28672, "rope_theta": 500000.0, "tie": False,
    },
    "llama-3.1-8b": {
        "vocab_size": 128256, "context": 131072, "n_embd": 4096, "n_layer": 32, "n_head": 32,
        "n_kv_head": 8, "n_ffn": 14336, "rope_theta": 500000.0, "tie": False,
        "rope_scaling": _llama3(8.0),
    },
    "llama-3.2-1b": {
        "vocab_size": 128256, "context": 131072, "n_embd": 2048, "n_layer": 16, "n_head": 32,
        "n_kv_head": 8, "n_ffn": 8192, "rope_theta": 500000.0, "rope_scaling": _llama3(32.0),
    },
    "llama-3.2-3b": {
        "vocab_size": 128256, "context": 131072, "n_embd": 3072, "n_layer": 28, "n_head": 24,
        "n_kv_head": 8, "n_ffn": 8192, "rope_theta": 500000.0, "rope_scaling": _llama3(32.0),
    },
    "smollm-135m": {
        "vocab_size": 49152, "context": 2048, "n_embd": 576, "n_layer": 30, "n_head": 9,
        "n_kv_head": 3, "n_ffn": 1536,
    },
    "smollm-360m": {
        "vocab_size": 49152, "context": 2048, "n_embd": 960, "n_layer": 32, "n_head": 15,
        "n_kv_head": 5, "n_ffn": 2560,
    },
    "smollm-1.7b": {
        "vocab_size": 49152, "context": 2048, "n_embd": 2048, "n_layer": 24, "n_head": 32,
        "n_ffn": 8192,
    },
    "smollm2-135m": {
        "vocab_size": 49152, "context": 8192, "n_embd": 576, "n_layer": 30, "n_head": 9,
        "n_kv_head": 3, "n_ffn": 1536, "rope_theta": 100000.0,
    },
    "smollm2-360m": {
        "vocab_size": 49152, "context": 8192, "n_embd": 960, "n_layer": 32, "n_head": 15,
        "n_kv_head": 5, "n_ffn": 2560, "rope_theta": 100000.0,
    },
    "smollm2-1.7b": {
        "vocab_size": 49152, "context": 8192, "n_embd": 2048, "n_layer": 24, "n_head": 32,
        "n_ffn": 8192, "rope_theta": 130000.0,
    },
    "mistral-7b": {
        "vocab_size": 32000, "context": 32768, "n_embd": 4096, "n_layer": 32, "n_head": 32,
        "n_kv_head": 8, "n_ffn": 14336, "tie": False, "window": 4096,
    },
    "mixtral-8x7b": {
        "vocab_size": 32000, "context": 32768, "n_embd": 4096, "n_layer": 32, "n_head": 32,
        "n_kv_head": 8, "n_ffn": 14336, "rope_theta": 1000000.0, "tie": False, "n_expert": 8,
        "n_expert_used": 2, "router_aux": 0.02,
    },
}  # fmt: skip

_QWEN: dict[str, dict[str, Any]] = {
    "qwen2-0.5b": {
        "family": "qwen2", "vocab_size": 151936, "context": 131072, "n_embd": 896, "n_layer": 24,
        "n_head": 14, "n_kv_head": 2, "n_ffn": 4864, "rope_theta": 1000000.0, "eps": 1e-6,
    },
    "qwen2-1.5b": {
        "family": "qwen2", "vocab_size": 151936, "context": 131072, "n_embd": 1536,
        "n_layer": 28, "n_head": 12, "n_kv_head": 2, "n_ffn": 8960, "rope_theta": 1000000.0,
        "eps": 1e-6,
    },
    "qwen2-7b": {
        "family": "qwen2", "vocab_size": 152064, "context": 131072, "n_embd": 3584,
        "n_layer": 28, "n_head": 28, "n_kv_head": 4, "n_ffn": 18944, "rope_theta": 1000000.0,
        "eps": 1e-6, "tie": False,
    },
    "qwen3-0.6b": {
        "family": "qwen3", "vocab_size": 151936, "context": 40960, "n_embd": 1024, "n_layer": 28,
        "n_head": 16, "n_kv_head": 8, "n_head_dim": 128, "n_ffn": 3072, "rope_theta": 1000000.0,
        "eps": 1e-6,
    },
    "qwen3-1.7b": {
        "family": "qwen3", "vocab_size": 151936, "context": 40960, "n_embd": 2048, "n_layer": 28,
        "n_head": 16, "n_kv_head": 8, "n_ffn": 6144, "rope_theta": 1000000.0, "eps": 1e-6,
    },
    "qwen3-4b": {
        "family": "qwen3", "vocab_size": 151936, "context": 40960, "n_embd": 2560, "n_layer": 36,
        "n_head": 32, "n_kv_head": 8, "n_head_dim": 128, "n_ffn": 9728, "rope_theta": 1000000.0,
        "eps": 1e-6,
    },
    "qwen3-8b": {
        "family": "qwen3", "vocab_size": 151936, "context": 40960, "n_embd": 4096, "n_layer": 36,
        "n_head": 32, "n_kv_head": 8, "n_ffn": 12288, "rope_theta": 1000000.0, "eps": 1e-6,
        "tie": False,
    },
    "qwen1.5-moe-a2.7b": {
        "family": "qwen2moe", "vocab_size": 151936, "context": 8192, "n_embd": 2048,
        "n_layer": 24, "n_head": 16, "n_ffn": 5632, "rope_theta": 1000000.0, "eps": 1e-6,
        "tie": False, "n_expert": 60, "n_expert_used": 4, "n_expert_ffn": 1408,
        "n_shared_ffn": 5632, "router_aux": 0.001,
    },
    "qwen3-30b-a3b": {
        "family": "qwen3moe", "vocab_size": 151936, "context": 40960, "n_embd": 2048,
        "n_layer": 48, "n_head": 32, "n_kv_head": 4, "n_head_dim": 128, "n_ffn": 6144,
        "rope_theta": 1000000.0, "eps": 1e-6, "tie": False, "n_expert": 128, "n_expert_used": 8,
        "n_expert_ffn": 768, "router_aux": 0.001,
    },
}  # fmt: skip

_GEMMA: dict[str, dict[str, Any]] = {
    "gemma-2b": {
        "family": "gemma", "vocab_size": 256000, "context": 8192, "n_embd": 2048, "n_layer": 18,
        "n_head": 8, "n_kv_head": 1, "n_head_dim": 256, "n_ffn": 16384, "eps": 1e-6,
    },
    "gemma-7b": {
        "family": "gemma", "vocab_size": 256000, "context": 8192, "n_embd": 3072, "n_layer": 28,
        "n_head": 16, "n_head_dim": 256, "n_ffn": 24576, "eps": 1e-6,
    },
    "gemma-2-2b": {
        "family": "gemma2", "vocab_size": 256000, "context": 8192, "n_embd": 2304, "n_layer": 26,
        "n_head": 8, "n_kv_head": 4, "n_head_dim": 256, "n_ffn": 9216, "eps": 1e-6,
    },
    "gemma-2-9b": {
        "family": "gemma2", "vocab_size": 256000, "context": 8192, "n_embd": 3584, "n_layer": 42,
        "n_head": 16, "n_kv_head": 8, "n_head_dim": 256, "n_ffn": 14336, "eps": 1e-6,
    },
    "gemma-3-1b": {
        "family": "gemma3", "vocab_size": 262144, "context": 32768, "n_embd": 1152, "n_layer": 26,
        "n_head": 4, "n_kv_head": 1, "n_head_dim": 256, "n_ffn": 6912, "eps": 1e-6,
        "rope_theta": 1000000.0, "window": 512,
    },
}  # fmt: skip

_OTHERS: dict[str, dict[str, Any]] = {
    "phi-2": {
        "family": "phi2", "vocab_size": 51200, "context": 2048, "n_embd": 2560, "n_layer": 32,
        "n_head": 32, "n_ffn": 10240, "rope_dims": 32, "tie": False,
    },
    "phi-3-mini-4k": {
        "family": "phi3", "vocab_size": 32064, "context": 4096, "n_embd": 3072, "n_layer": 32,
        "n_head": 32, "n_ffn": 8192, "tie": False, "window": 2047,
    },
    "phi-4": {
        "family": "phi3", "vocab_size": 100352, "context": 16384, "n_embd": 5120, "n_layer": 40,
        "n_head": 40, "n_kv_head": 10, "n_ffn": 17920, "rope_theta": 250000.0, "tie": False,
    },
    "olmo-2-1b": {
        "family": "olmo2", "vocab_size": 100352, "context": 4096, "n_embd": 2048, "n_layer": 16,
        "n_head": 16, "n_ffn": 8192, "rope_theta": 500000.0, "eps": 1e-6, "tie": False,
    },
    "granite-3.1-2b": {
        "family": "granite", "vocab_size": 49152, "context": 131072, "n_embd": 2048,
        "n_layer": 40, "n_head": 32, "n_kv_head": 8, "n_ffn": 8192, "rope_theta": 5000000.0,
        "embedding_scale": 12.0, "residual_scale": 0.22, "attention_scale": 0.015625,
        "logit_scale": 8.0,
    },
    "smollm3-3b": {
        "family": "smollm3", "vocab_size": 128256, "context": 65536, "n_embd": 2048,
        "n_layer": 36, "n_head": 16, "n_kv_head": 4, "n_ffn": 11008, "rope_theta": 5000000.0,
        "eps": 1e-6,
    },
    "starcoder2-3b": {
        "family": "starcoder2", "vocab_size": 49152, "context": 16384, "n_embd": 3072,
        "n_layer": 30, "n_head": 24, "n_kv_head": 2, "n_ffn": 12288, "window": 4096,
        "rope_theta": 999999.4420358813,
    },
    "stablelm-2-1.6b": {
        "family": "stablelm", "vocab_size": 100352, "context": 4096, "n_embd": 2048,
        "n_layer": 24, "n_head": 32, "n_ffn": 5632, "rope_dims": 16, "attention_bias": "qkv",
        "tie": False,
    },
    "gpt-oss-20b": {
        "family": "gpt-oss", "vocab_size": 201088, "context": 131072, "n_embd": 2880,
        "n_layer": 24, "n_head": 64, "n_kv_head": 8, "n_head_dim": 64, "n_ffn": 2880,
        "n_expert": 32, "n_expert_used": 4, "rope_theta": 150000.0, "tie": False,
        "rope_scaling": {"kind": "yarn", "factor": 32.0, "original": 4096, "truncate": False},
    },
}  # fmt: skip

PRESETS = {**_OWN, **_LLAMA, **_QWEN, **_GEMMA, **_OTHERS}
