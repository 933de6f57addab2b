# SPDX-License-Identifier: MIT
"""Modules, their functions and initialisers."""

from typing import TYPE_CHECKING

from ..absent import absent_in
from . import functional, init, lora, losses
from .activations import (
    ELU,
    Hardsigmoid,
    Hardswish,
    Identity,
    LeakyReLU,
    LogSoftmax,
    Mish,
    ReLU6,
    Sigmoid,
    Softmax,
    Softplus,
)
from .attention import CausalSelfAttention
from .base import IncompatibleKeys, RemovableHandle
from .cache import KVCache, LayerCache
from .containers import ModuleDict, ModuleList, Sequential
from .experts import MixtureOfExperts, balance_loss
from .images import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    Flatten,
    GlobalAvgPool2d,
    GroupNorm,
    MaxPool2d,
    Unflatten,
    Upsample,
)
from .layers import (
    GELU,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
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
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    HuberLoss,
    InfoNCE,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    ZLoss,
)
from .masks import causal_mask, padding_mask, position_ids, segment_mask
from .mlp import GEGLUMLP, GELUMLP, SwiGLUMLP
from .module import Module, Parameter
from .relative import RelativePositionBias, relative_buckets
from .rope import Rope, RopeScaling
from .summary import LayerSummary, Summary, summary
from .transformer import MultiheadAttention, TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CausalSelfAttention",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "Dropout",
    "ELU",
    "Embedding",
    "Flatten",
    "GELU",
    "GEGLUMLP",
    "GELUMLP",
    "GlobalAvgPool2d",
    "GroupNorm",
    "HuberLoss",
    "Identity",
    "IncompatibleKeys",
    "InfoNCE",
    "KLDivLoss",
    "KVCache",
    "L1Loss",
    "LayerCache",
    "LayerNorm",
    "LayerSummary",
    "LeakyReLU",
    "Linear",
    "LoRAConv2d",
    "LoRAEmbedding",
    "LoRALinear",
    "LoRAStackedLinear",
    "LogSoftmax",
    "MaxPool2d",
    "MixtureOfExperts",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "MSELoss",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "RelativePositionBias",
    "RemovableHandle",
    "RMSNorm",
    "Rope",
    "RopeScaling",
    "Sequential",
    "Sigmoid",
    "SiLU",
    "SmoothL1Loss",
    "Softplus",
    "Softmax",
    "SwiGLUMLP",
    "Summary",
    "Tanh",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "Unflatten",
    "Upsample",
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
    "summary",
    "Hardsigmoid",
    "Hardswish",
    "Mish",
    "ReLU6",
]

if not TYPE_CHECKING:  # type checkers go on reporting absent names
    __getattr__ = absent_in("nn", __name__)
