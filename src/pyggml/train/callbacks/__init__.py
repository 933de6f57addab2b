# SPDX-License-Identifier: MIT
"""Callbacks of a Trainer: their base class, and those that write files or tell loggers."""

from .history import History
from .known import check_events
from .loggers import TensorBoardWriter, WandbWriter
from .progress import Progress
from .writers import Callback, MetricsWriter, Sampler

__all__ = [
    "Callback",
    "History",
    "MetricsWriter",
    "Progress",
    "Sampler",
    "TensorBoardWriter",
    "WandbWriter",
    "check_events",
]
