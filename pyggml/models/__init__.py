# SPDX-License-Identifier: MIT
"""Language models: configuration, module, names in files, generation."""

from .base import LanguageModel
from .config import ModelConfig
from .generate import Generator, generate, sample
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig
from .registry import MODELS, build, load

__all__ = [
    "GPT2",
    "MODELS",
    "GPT2Config",
    "Generator",
    "LanguageModel",
    "Llama",
    "LlamaConfig",
    "ModelConfig",
    "build",
    "generate",
    "load",
    "sample",
]
