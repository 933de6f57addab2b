# SPDX-License-Identifier: MIT
"""Quantised files: llama.cpp's mixes by name, and importance matrices."""

from .importance import measure_importance, read_importance, write_importance
from .mixes import MIXES
from .quantize import quantize_gguf

__all__ = ["MIXES", "measure_importance", "quantize_gguf", "read_importance", "write_importance"]
