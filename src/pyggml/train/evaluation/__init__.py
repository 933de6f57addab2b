# SPDX-License-Identifier: MIT
"""Evaluation: the loss and other metrics of a model on validation sets."""

from .evaluate import eval_batches, evaluate

__all__ = ["eval_batches", "evaluate"]
