# SPDX-License-Identifier: MIT
"""Distillation: a model learns what a larger one says of each token, which is cached on disk."""

from .cache import TeacherCache, cache_teacher
from .dataset import DistillationDataset
from .loss import distillation_loss, top_k_kl

__all__ = [
    "DistillationDataset",
    "TeacherCache",
    "cache_teacher",
    "distillation_loss",
    "top_k_kl",
]
