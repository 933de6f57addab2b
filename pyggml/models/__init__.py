# SPDX-License-Identifier: MIT
"""Models: configuration, module, names in files, generation."""

from .adapter import load_lora, save_lora
from .base import Model
from .bert import BERT, BERTConfig
from .bert_heads import BERTForMaskedLM, BERTForSequenceClassification
from .cnn import CNN, CNNConfig
from .config import ModelConfig
from .generate import Generator, generate, sample
from .generate_t5 import generate_from
from .gpt2 import GPT2, GPT2Config
from .image import ClassifierConfig, ImageModel
from .language import LanguageModel
from .llama import Llama, LlamaConfig
from .llm import LLM, LLMConfig
from .mlp import MLP, MLPConfig
from .registry import LANGUAGE_MODELS, MODELS, build, load
from .resnet import ResNet, ResNetConfig
from .t5 import T5, T5Config

__all__ = [
    "BERT",
    "BERTConfig",
    "BERTForMaskedLM",
    "BERTForSequenceClassification",
    "CNN",
    "CNNConfig",
    "ClassifierConfig",
    "GPT2",
    "GPT2Config",
    "Generator",
    "ImageModel",
    "LANGUAGE_MODELS",
    "LLM",
    "LLMConfig",
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
    "T5",
    "T5Config",
    "build",
    "generate",
    "generate_from",
    "load",
    "load_lora",
    "sample",
    "save_lora",
]
