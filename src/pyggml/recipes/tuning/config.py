# SPDX-License-Identifier: MIT
"""The configuration of a fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import ConfigError
from ...options import option
from ...train.options import VALIDATION, TrainerOptions
from ..configuration import Configuration
from ..options import MachineOptions, OptimizerOptions, OutputOptions, check_agreement
from .class_options import CLASSIFY, TaskOptions, check_task
from .data_options import FinetuneDataOptions
from .model_options import ROWS, TeacherOptions, TunedModelOptions, read_mix
from .preference_options import SFT, PreferenceOptions, check_method

__all__ = ["FinetuneConfig", "FinetuneOutputOptions"]

# Learning rates that suit small matrices that begin at zero, and weights that are good already.
LR_LORA, LR_FULL = 2e-4, 2e-5
# By preferences a model that answers well is to change little.
LR_PREFERENCES, LR_PREFERENCES_FULL = 2e-5, 1e-6
_BASE = "base"
# What the answers to validation prompts need.
_WRITES = "a task of text"


def _read_merge(name: str) -> str:
    return _BASE if name.lower() == _BASE else read_mix(name)


@dataclass(frozen=True, kw_only=True)
class FinetuneOutputOptions(OutputOptions):
    """The results of a fine-tuning: adapter, merged model, and answers to compare.

    Example:
        >>> FinetuneOutputOptions(merge="q8_0").merge
        'Q8_0'
    """

    merge: str | None = option(
        None,
        "Write model.gguf with the adapters added to the weights: base keeps the types of the "
        "base; else a mix of llama.cpp, such as Q8_0.",
        metavar="TYPE",
        read=_read_merge,
        on_resume="free",
    )
    imatrix: str | None = option(
        None,
        "Importance matrix of the base, a file of pyggml imatrix, for the rounding of merged "
        "weights.",
        is_path=True,
        metavar="FILE",
        needs=("merge",),
        on_resume="free",
    )
    answers: int = option(
        3,
        "Validation prompts that the model answers before and after the training.",
        least=0,
        needs=(VALIDATION, _WRITES),
        on_resume="free",
    )
    answer_tokens: int = option(
        64, "Most tokens of an answer.", least=1, unit="tokens", needs=("answers",),
        on_resume="free",
    )  # fmt: skip
    show_sample: bool = option(
        False,
        "Show a row of the training data with its trained tokens marked.",
        on_resume="free",
    )


class FinetuneConfig(Configuration):
    """The options of a fine-tuning: `FinetuneConfig(model="base.gguf", data="chats.jsonl")`.

    Raises:
        ConfigError: an option is unknown or cannot be used, or two do not agree.

    Example:
        >>> FinetuneConfig(model="base.gguf", data="chats.jsonl").trainer.epochs
        3
    """

    data: FinetuneDataOptions
    task: TaskOptions
    preferences: PreferenceOptions
    model: TunedModelOptions
    teacher: TeacherOptions
    optimizer: OptimizerOptions
    trainer: TrainerOptions
    output: FinetuneOutputOptions
    machine: MachineOptions

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "artifact_dir": "artifacts/finetune",
        "epochs": 3,
        "weight_decay": 0.0,
        "memory_limit": "auto",
    }
    CHOSEN: ClassVar[Mapping[str, Any]] = {
        "lr": f"adapters {LR_LORA:g}, `full` {LR_FULL:g}; by preferences {LR_PREFERENCES:g} and "
        f"{LR_PREFERENCES_FULL:g}",
        "epochs": "3, unless `steps` is given",
        "steps": "those of `epochs`",
        "batch_size": "8, at most the rows that there are",
        "checkpointing": "as few as fit into `memory_limit`",
    }

    @property
    def lr(self) -> float:
        """The highest learning rate: as given, or the one that suits adapters or weights."""
        if self.trainer.lr is not None:
            return self.trainer.lr
        if self.preferences.method != SFT:
            return LR_PREFERENCES_FULL if self.model.full else LR_PREFERENCES
        return LR_FULL if self.model.full else LR_LORA

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return that there is nothing for validation."""
        found = {}
        if not self.data.val_fraction:
            found[VALIDATION] = ("`val_fraction`=0", "keep some data for validation")
        if not self.data.packing:
            found[ROWS] = ("`packing`=False", "leave one of them out")
        if self.task.task == CLASSIFY:
            found[_WRITES] = (f"`task`={CLASSIFY}", "leave one of them out")
        return found

    def check(self) -> None:
        """Raise `ConfigError` if the parts do not agree."""
        if self.output.merge is not None and self.model.full:
            raise ConfigError(
                "`merge` is for adapters; got `full`, whose model.gguf has the trained weights: "
                "leave `merge` out"
            )
        if self.teacher.teacher is not None and self.trainer.label_smoothing:
            raise ConfigError(
                "`teacher` excludes `label_smoothing`, as the teacher's probabilities smooth the "
                "answers: leave one of them out"
            )
        if self.model.qat is not None:
            self._check_rounding()
        check_task(self)
        check_method(self)
        check_agreement(self.optimizer, self.trainer)

    def _check_rounding(self) -> None:
        """Raise on what training with rounded weights excludes."""
        excluded = {
            "fused_update": (self.optimizer.fused_update, "the masters need kept gradients"),
            "ema": (self.trainer.ema, "an average of rounded weights is not rounded"),
            "export": (
                self.output.chosen_export(self.trainer) == "best",
                "the file has the rounded weights of the last step: give `export`=last",
            ),
        }
        for name, (given, why) in excluded.items():
            if given:
                raise ConfigError(f"`qat` excludes `{name}`, as {why}; got both")
