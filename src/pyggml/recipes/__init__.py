# SPDX-License-Identifier: MIT
"""Whole runs as functions, their folders, plots and reports."""

from .artifact import ArtifactDir
from .classifier import ImageClassifier
from .config_file import read_config, save_config
from .configuration import Configuration
from .export import export_checkpoint
from .image import ImageRun
from .image_config import ImageConfig
from .llm import LLMRun
from .llm_config import LLMConfig
from .optimizer import make_optimizer
from .report import (
    ClassResults,
    check_plot,
    plot_curves,
    plot_loss,
    plot_matrix,
    system_info,
    write_comparison,
    write_report,
)
from .script import script_options
from .train import finetune, train_image, train_llm
from .tuning import FinetuneConfig, FinetuneRun, GRPORun, grpo

__all__ = [
    "ClassResults",
    "ArtifactDir",
    "Configuration",
    "FinetuneConfig",
    "FinetuneRun",
    "GRPORun",
    "ImageClassifier",
    "ImageConfig",
    "ImageRun",
    "LLMConfig",
    "LLMRun",
    "check_plot",
    "export_checkpoint",
    "finetune",
    "grpo",
    "make_optimizer",
    "plot_curves",
    "plot_loss",
    "plot_matrix",
    "read_config",
    "save_config",
    "script_options",
    "system_info",
    "train_image",
    "train_llm",
    "write_comparison",
    "write_report",
]
