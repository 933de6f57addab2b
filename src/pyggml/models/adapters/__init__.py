# SPDX-License-Identifier: MIT
"""LoRA adapters in files: GGUF and PEFT's folders."""

from .files import load_lora, save_lora

__all__ = ["load_lora", "save_lora"]
