# SPDX-License-Identifier: MIT
"""Metrics of steps and evaluations, their file, and metrics of predictions."""

from .records import EvalMetrics, MetricsError, MetricsFile, StepMetrics, perplexity, read_metrics
from .scoring import (
    accuracy,
    bits_per_byte,
    confusion_matrix,
    f1_score,
    token_bytes,
    top_k_accuracy,
)

__all__ = [
    "EvalMetrics",
    "MetricsError",
    "MetricsFile",
    "StepMetrics",
    "accuracy",
    "bits_per_byte",
    "confusion_matrix",
    "f1_score",
    "perplexity",
    "read_metrics",
    "token_bytes",
    "top_k_accuracy",
]
