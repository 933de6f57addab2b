# SPDX-License-Identifier: MIT
"""Training: steps, evaluation, checkpoints, metrics, and whole runs."""

from .artifact import ArtifactDir
from .callbacks import Callback, MetricsWriter, Sampler
from .checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from .classifier import ImageClassifier
from .config import ConfigError, TrainConfig
from .diagnose import TrainingError
from .evaluate import eval_batches, evaluate
from .export import export_checkpoint
from .fallbacks import step_fallbacks
from .files import read_config, save_config
from .finder import LRFinding, find_lr
from .folders import CheckpointError, latest_checkpoint, list_checkpoints
from .image_config import ImageConfig
from .image_run import ImageResults, ImageRun
from .interrupt import InterruptGuard, StoppedAtOnce, TrainingInterrupted
from .loggers import TensorBoardWriter, WandbWriter
from .metrics import EvalMetrics, MetricsError, MetricsFile, StepMetrics, perplexity, read_metrics
from .named import make_optimizer
from .plan import MemoryPlan, OutOfMemoryError, format_bytes, parse_bytes
from .plot import check_plot, plot_curves, plot_loss, plot_matrix
from .recipes import LLMRun
from .report import system_info, write_report
from .scaler import GradScaler
from .scores import (
    accuracy,
    bits_per_byte,
    confusion_matrix,
    f1_score,
    token_bytes,
    top_k_accuracy,
)
from .script import script_options
from .state import TrainState
from .step import NonFiniteError, StepResult, TrainStep
from .trainer import FitResult, Trainer

__all__ = [
    "ArtifactDir",
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "ConfigError",
    "EvalMetrics",
    "FitResult",
    "GradScaler",
    "ImageClassifier",
    "ImageConfig",
    "ImageResults",
    "ImageRun",
    "InterruptGuard",
    "LLMRun",
    "LRFinding",
    "MemoryPlan",
    "MetricsError",
    "MetricsFile",
    "MetricsWriter",
    "NonFiniteError",
    "OutOfMemoryError",
    "Sampler",
    "StepMetrics",
    "StepResult",
    "StoppedAtOnce",
    "TensorBoardWriter",
    "TrainConfig",
    "TrainState",
    "TrainStep",
    "Trainer",
    "TrainingError",
    "TrainingInterrupted",
    "WandbWriter",
    "accuracy",
    "bits_per_byte",
    "check_plot",
    "confusion_matrix",
    "eval_batches",
    "evaluate",
    "export_checkpoint",
    "f1_score",
    "find_lr",
    "format_bytes",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "make_optimizer",
    "parse_bytes",
    "perplexity",
    "plot_curves",
    "plot_loss",
    "plot_matrix",
    "read_config",
    "read_metrics",
    "save_checkpoint",
    "save_config",
    "script_options",
    "step_fallbacks",
    "system_info",
    "token_bytes",
    "top_k_accuracy",
    "write_report",
]
