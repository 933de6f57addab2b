# SPDX-License-Identifier: MIT
"""Models: configuration, module, names in files, generation."""

from .adapters import load_lora, save_lora
from .base import Model
from .bert.heads import (
    BERTForMaskedLM,
    BERTForSequenceClassification,
    BERTForTokenClassification,
)
from .bert.model import BERT, BERTConfig
from .chat import ChatSession
from .config import ModelConfig
from .convert import convert
from .generate import generate
from .generator import Generator
from .gpt2 import GPT2, GPT2Config
from .language import LanguageModel
from .llama.heads import LlamaClassifierConfig, LlamaForSequenceClassification
from .llama.model import Llama, LlamaConfig
from .llama_cpp import Finding, check_gguf
from .llm import LLM, LLMConfig
from .modernbert.config import ModernBERTConfig
from .modernbert.heads import ModernBERTForMaskedLM, ModernBERTForSequenceClassification
from .modernbert.model import ModernBERT
from .pretrained.generation import generation_settings
from .registry import LANGUAGE_MODELS, MODELS, build, load
from .sampling import Sampling, sample
from .t5.generate import generate_from
from .t5.model import T5, T5Config
from .vision.cnn import CNN, CNNConfig
from .vision.image import ClassifierConfig, ImageModel
from .vision.mlp import MLP, MLPConfig
from .vision.resnet import ResNet, ResNetConfig

__all__ = [
    "BERT",
    "BERTConfig",
    "BERTForMaskedLM",
    "BERTForSequenceClassification",
    "BERTForTokenClassification",
    "CNN",
    "ChatSession",
    "CNNConfig",
    "ClassifierConfig",
    "Finding",
    "GPT2",
    "GPT2Config",
    "Generator",
    "ImageModel",
    "LANGUAGE_MODELS",
    "LLM",
    "LLMConfig",
    "LanguageModel",
    "Llama",
    "LlamaClassifierConfig",
    "LlamaConfig",
    "LlamaForSequenceClassification",
    "MLP",
    "MLPConfig",
    "MODELS",
    "Model",
    "ModelConfig",
    "ModernBERT",
    "ModernBERTConfig",
    "ModernBERTForMaskedLM",
    "ModernBERTForSequenceClassification",
    "ResNet",
    "ResNetConfig",
    "Sampling",
    "T5",
    "T5Config",
    "build",
    "convert",
    "check_gguf",
    "generate",
    "generate_from",
    "generation_settings",
    "load",
    "load_lora",
    "sample",
    "save_lora",
]
