# SPDX-License-Identifier: MIT
"""LoRA: small trained matrices beside frozen ones, which may be quantised (QLoRA)."""

from .apply import (
    adapt,
    adapters_of,
    apply_lora,
    heads_of,
    layers_of,
    need_adapters,
    need_no_adapters,
)
from .combine import Factors, combine_lora
from .kinds import LoRAConv2d, LoRAEmbedding, LoRAStackedLinear, lora_class
from .layer import LoRALayer, LoRALinear, check_rank
from .merge import load_lora_state_dict, lora_state_dict, merge_lora, remove_lora

__all__ = [
    "Factors",
    "LoRAConv2d",
    "LoRAEmbedding",
    "LoRALayer",
    "LoRALinear",
    "LoRAStackedLinear",
    "adapt",
    "adapters_of",
    "apply_lora",
    "check_rank",
    "combine_lora",
    "heads_of",
    "layers_of",
    "load_lora_state_dict",
    "lora_class",
    "lora_state_dict",
    "merge_lora",
    "need_adapters",
    "need_no_adapters",
    "remove_lora",
]
