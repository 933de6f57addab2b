# SPDX-License-Identifier: MIT
"""Modules, their functions and initialisers."""

from . import functional, init, lora, losses
from .attention import CausalSelfAttention
from .cache import KVCache, LayerCache
from .convolution import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d, MaxPool2d
from .experts import MixtureOfExperts, balance_loss
from .image_norms import BatchNorm1d, BatchNorm2d, GroupNorm
from .layers import (
    GELU,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sequential,
    SiLU,
    Tanh,
)
from .lora import (
    LoRAConv2d,
    LoRAEmbedding,
    LoRALinear,
    LoRAStackedLinear,
    apply_lora,
    load_lora_state_dict,
    lora_state_dict,
    merge_lora,
    remove_lora,
)
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
from .masks import causal_mask, padding_mask, position_ids, segment_mask
from .mlp import GEGLUMLP, GELUMLP, SwiGLUMLP
from .module import IncompatibleKeys, Module, Parameter
from .relative import RelativePositionBias, relative_buckets
from .rope import Rope, RopeScaling

__all__ = [
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BCEWithLogitsLoss",
    "CausalSelfAttention",
    "Conv2d",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GELU",
    "GEGLUMLP",
    "GELUMLP",
    "GlobalAvgPool2d",
    "GroupNorm",
    "HuberLoss",
    "IncompatibleKeys",
    "InfoNCE",
    "KLDivLoss",
    "KVCache",
    "L1Loss",
    "LayerCache",
    "LayerNorm",
    "Linear",
    "LoRAConv2d",
    "LoRAEmbedding",
    "LoRALinear",
    "LoRAStackedLinear",
    "MaxPool2d",
    "MixtureOfExperts",
    "Module",
    "MSELoss",
    "Parameter",
    "ReLU",
    "RelativePositionBias",
    "RMSNorm",
    "Rope",
    "RopeScaling",
    "Sequential",
    "SiLU",
    "SmoothL1Loss",
    "SwiGLUMLP",
    "Tanh",
    "ZLoss",
    "apply_lora",
    "balance_loss",
    "causal_mask",
    "functional",
    "init",
    "load_lora_state_dict",
    "lora",
    "lora_state_dict",
    "losses",
    "merge_lora",
    "padding_mask",
    "position_ids",
    "relative_buckets",
    "remove_lora",
    "segment_mask",
]
