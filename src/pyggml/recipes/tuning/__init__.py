# SPDX-License-Identifier: MIT
"""Fine-tuning: a base and examples in, an adapter or a model out."""

from .config import FinetuneConfig
from .grpo import GRPORun, grpo
from .run import FinetuneRun

__all__ = ["FinetuneConfig", "FinetuneRun", "GRPORun", "grpo"]
