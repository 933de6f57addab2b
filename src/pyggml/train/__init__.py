# SPDX-License-Identifier: MIT
"""Training: steps, evaluation, checkpoints and metrics."""

from ..errors import ConfigError
from .callbacks import (
    Callback,
    History,
    MetricsWriter,
    Progress,
    Sampler,
    TensorBoardWriter,
    WandbWriter,
)
from .checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from .checkpoints.folders import CheckpointError, latest_checkpoint, list_checkpoints
from .checkpoints.state import TrainState
from .diagnose import TrainingError
from .evaluation import (
    AnswerScores,
    ChoiceScores,
    eval_batches,
    evaluate,
    harness_model,
    score_answers,
    score_choices,
    token_scores,
)
from .fallbacks import step_fallbacks
from .finder import LRFinding, find_lr
from .interrupt import InterruptGuard, StoppedAtOnce, TrainingInterrupted
from .losses import count_targets
from .memory import MemoryPlan, OutOfMemoryError, format_bytes, parse_bytes
from .metrics import (
    EvalMetrics,
    MetricsError,
    MetricsFile,
    StepMetrics,
    accuracy,
    bits_per_byte,
    confusion_matrix,
    f1_score,
    label_f1_score,
    mae,
    perplexity,
    r2_score,
    read_metrics,
    rmse,
    span_f1_score,
    subset_accuracy,
    token_bytes,
    top_k_accuracy,
)
from .options import TrainerOptions
from .quantized import QuantizationAware, quantization_aware
from .scaler import GradScaler
from .step import NonFiniteError, StepResult, TrainStep
from .tasks import TASKS, Task
from .tasks.predict import predict
from .trainer import FitResult, Trainer

__all__ = [
    "AnswerScores",
    "harness_model",
    "token_scores",
    "ChoiceScores",
    "score_answers",
    "score_choices",
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "ConfigError",
    "EvalMetrics",
    "FitResult",
    "GradScaler",
    "History",
    "InterruptGuard",
    "LRFinding",
    "MemoryPlan",
    "MetricsError",
    "MetricsFile",
    "MetricsWriter",
    "NonFiniteError",
    "OutOfMemoryError",
    "Progress",
    "QuantizationAware",
    "Sampler",
    "StepMetrics",
    "StepResult",
    "TASKS",
    "Task",
    "StoppedAtOnce",
    "TensorBoardWriter",
    "TrainState",
    "TrainStep",
    "Trainer",
    "TrainerOptions",
    "TrainingError",
    "TrainingInterrupted",
    "WandbWriter",
    "accuracy",
    "bits_per_byte",
    "confusion_matrix",
    "count_targets",
    "eval_batches",
    "evaluate",
    "f1_score",
    "label_f1_score",
    "mae",
    "find_lr",
    "format_bytes",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "parse_bytes",
    "perplexity",
    "predict",
    "r2_score",
    "quantization_aware",
    "read_metrics",
    "rmse",
    "span_f1_score",
    "subset_accuracy",
    "save_checkpoint",
    "step_fallbacks",
    "token_bytes",
    "top_k_accuracy",
]
