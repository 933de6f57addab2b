# SPDX-License-Identifier: MIT
"""Metrics of steps and evaluations, their file, and metrics of predictions."""

from .records import EvalMetrics, MetricsError, MetricsFile, StepMetrics, perplexity, read_metrics
from .regression import mae, r2_score, rmse
from .scoring import (
    accuracy,
    bits_per_byte,
    confusion_matrix,
    f1_score,
    label_f1_score,
    subset_accuracy,
    token_bytes,
    top_k_accuracy,
)
from .spans import span_f1_score

__all__ = [
    "EvalMetrics",
    "MetricsError",
    "MetricsFile",
    "StepMetrics",
    "accuracy",
    "bits_per_byte",
    "confusion_matrix",
    "f1_score",
    "label_f1_score",
    "mae",
    "perplexity",
    "r2_score",
    "read_metrics",
    "rmse",
    "span_f1_score",
    "subset_accuracy",
    "token_bytes",
    "top_k_accuracy",
]
