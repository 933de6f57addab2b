# SPDX-License-Identifier: MIT
"""BERT and its heads."""

from .config import BERTConfig
from .heads import (
    BERTForMaskedLM,
    BERTForSequenceClassification,
    BERTForTokenClassification,
)
from .model import BERT

__all__ = [
    "BERT",
    "BERTConfig",
    "BERTForMaskedLM",
    "BERTForSequenceClassification",
    "BERTForTokenClassification",
]
