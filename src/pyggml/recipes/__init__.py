# SPDX-License-Identifier: MIT
"""Whole runs as functions, their folders, plots and reports."""

from .artifact import ArtifactDir
from .classifier import ImageClassifier
from .export import export_checkpoint
from .files import read_config, save_config
from .image import ImageResults, ImageRun
from .image_config import ImageConfig
from .llm import LLMRun
from .report import (
    check_plot,
    plot_curves,
    plot_loss,
    plot_matrix,
    system_info,
    write_report,
)
from .script import script_options

__all__ = [
    "ArtifactDir",
    "ImageClassifier",
    "ImageConfig",
    "ImageResults",
    "ImageRun",
    "LLMRun",
    "check_plot",
    "export_checkpoint",
    "plot_curves",
    "plot_loss",
    "plot_matrix",
    "read_config",
    "save_config",
    "script_options",
    "system_info",
    "write_report",
]
