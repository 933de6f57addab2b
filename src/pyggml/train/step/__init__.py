# SPDX-License-Identifier: MIT
"""One optimizer step: the graphs of its batches, their gradients, and the update."""

from .step import Batch, NonFiniteError, StepResult, TrainStep

__all__ = ["Batch", "NonFiniteError", "StepResult", "TrainStep"]
