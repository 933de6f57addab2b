# SPDX-License-Identifier: MIT
"""ModernBERT."""

from .config import ModernBERTConfig
from .heads import ModernBERTForMaskedLM, ModernBERTForSequenceClassification
from .model import ModernBERT

__all__ = [
    "ModernBERT",
    "ModernBERTConfig",
    "ModernBERTForMaskedLM",
    "ModernBERTForSequenceClassification",
]
