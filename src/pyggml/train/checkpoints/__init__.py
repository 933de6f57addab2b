# SPDX-License-Identifier: MIT
"""Checkpoints: write, list, read, resume."""

from .checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from .folders import CheckpointError, latest_checkpoint, list_checkpoints
from .state import TrainState

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "TrainState",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "save_checkpoint",
]
