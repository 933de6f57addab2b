# SPDX-License-Identifier: MIT
"""Models: configuration, module, names in files, generation."""

from .base import Model
from .cnn import CNN, CNNConfig
from .config import ModelConfig
from .generate import Generator, generate, sample
from .gpt2 import GPT2, GPT2Config
from .image import ClassifierConfig, ImageModel
from .language import LanguageModel
from .llama import Llama, LlamaConfig
from .mlp import MLP, MLPConfig
from .registry import LANGUAGE_MODELS, MODELS, build, load
from .resnet import ResNet, ResNetConfig

__all__ = [
    "CNN",
    "CNNConfig",
    "ClassifierConfig",
    "GPT2",
    "GPT2Config",
    "Generator",
    "ImageModel",
    "LANGUAGE_MODELS",
    "LanguageModel",
    "Llama",
    "LlamaConfig",
    "MLP",
    "MLPConfig",
    "MODELS",
    "Model",
    "ModelConfig",
    "ResNet",
    "ResNetConfig",
    "build",
    "generate",
    "load",
    "sample",
]
