# SPDX-License-Identifier: MIT
"""LoRA: small trained matrices beside frozen ones, which may be quantised (QLoRA)."""

from .apply import adapt, adapters_of, apply_lora, heads_of, need_adapters, need_no_adapters
from .layer import LoRALinear, check_rank
from .merge import load_lora_state_dict, lora_state_dict, merge_lora, remove_lora

__all__ = [
    "LoRALinear",
    "adapt",
    "adapters_of",
    "apply_lora",
    "check_rank",
    "heads_of",
    "load_lora_state_dict",
    "lora_state_dict",
    "merge_lora",
    "need_adapters",
    "need_no_adapters",
    "remove_lora",
]
