# SPDX-License-Identifier: MIT
"""The Llama family."""

from .config import LlamaConfig
from .model import Llama

__all__ = ["Llama", "LlamaConfig"]
