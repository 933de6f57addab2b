# SPDX-License-Identifier: MIT
"""Modules, their functions and initialisers."""

from . import functional, init, losses
from .attention import CausalSelfAttention, Rope, causal_mask, position_ids, segment_mask
from .cache import KVCache, LayerCache
from .layers import GELU, Dropout, Embedding, LayerNorm, Linear, ReLU, RMSNorm, Sequential, SiLU
from .losses import (
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    HuberLoss,
    InfoNCE,
    KLDivLoss,
    L1Loss,
    MSELoss,
    SmoothL1Loss,
    ZLoss,
)
from .mlp import GELUMLP, SwiGLUMLP
from .module import Module, Parameter

__all__ = [
    "BCEWithLogitsLoss",
    "CausalSelfAttention",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GELU",
    "GELUMLP",
    "HuberLoss",
    "InfoNCE",
    "KLDivLoss",
    "KVCache",
    "L1Loss",
    "LayerCache",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "Module",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Rope",
    "Sequential",
    "SiLU",
    "SmoothL1Loss",
    "SwiGLUMLP",
    "ZLoss",
    "causal_mask",
    "functional",
    "init",
    "losses",
    "position_ids",
    "segment_mask",
]
