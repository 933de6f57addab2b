# SPDX-License-Identifier: MIT
"""Hugging Face folders: `config.json`, safetensors, tokenizer files."""

from .fields import HFConfig
from .read import find_config, read_folder
from .write import save_folder

__all__ = ["HFConfig", "find_config", "read_folder", "save_folder"]
