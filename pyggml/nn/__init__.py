# SPDX-License-Identifier: MIT
"""Modules, their functions and initialisers."""

from . import functional, init
from .attention import CausalSelfAttention, Rope, causal_mask, position_ids, segment_mask
from .cache import KVCache, LayerCache
from .layers import GELU, Dropout, Embedding, LayerNorm, Linear, ReLU, RMSNorm, Sequential, SiLU
from .mlp import GELUMLP, SwiGLUMLP
from .module import Module, Parameter

__all__ = [
    "GELU",
    "GELUMLP",
    "CausalSelfAttention",
    "Dropout",
    "Embedding",
    "KVCache",
    "LayerCache",
    "LayerNorm",
    "Linear",
    "Module",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Rope",
    "Sequential",
    "SiLU",
    "SwiGLUMLP",
    "causal_mask",
    "functional",
    "init",
    "position_ids",
    "segment_mask",
]
