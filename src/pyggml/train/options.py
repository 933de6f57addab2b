# SPDX-License-Identifier: MIT
"""The options that a Trainer reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..backend.sizes import parse_bytes
from ..errors import ConfigError, shown
from ..optim import ReduceOnPlateau, schedule_functions
from ..options import Options, option

__all__ = [
    "CHECKPOINTS",
    "LOADER",
    "LOCAL",
    "NAMED_SCHEDULE",
    "PLATEAU",
    "PRECISIONS",
    "PROGRESS",
    "RISING",
    "ROUNDED",
    "VALIDATION",
    "TrainerOptions",
]

PRECISIONS = ("f32", "tf32", "bf16", "f16")
# A schedule besides those that are functions of the step alone.
PLATEAU = "plateau"
# Rises by itself, without a warm-up before it.
RISING = ("one_cycle",)
# What options need to be read, besides other options.
VALIDATION = "validation data"
CHECKPOINTS = "checkpoints"
PROGRESS = "`patience` or `keep_best`"
LOCAL = "`sync_every`"
LOADER = "a plain loader of pyggml.data"
NAMED_SCHEDULE = "a schedule by name"
ROUNDED = "`reduce_dtype`=bf16"
_LOWEST_RATE = "a schedule that falls to a lowest rate"
_WARM_UP = "a schedule with a warm-up"
# The arguments of schedules that are options by themselves.
_OF_SCHEDULES = {
    **dict.fromkeys(("value", "start", "peak"), "lr"),
    **dict.fromkeys(("end", "least"), "min_lr"),
    "warmup_steps": "warmup",
}
_METRIC = re.compile(r"accuracy|top[1-9][0-9]{0,7}|f1(_(weighted|micro|binary))?|r2|rmse|mae")
_CHECKPOINTING = {"all": True, "none": False}


def _schedules() -> list[str]:
    return [*schedule_functions(), PLATEAU]


def _read_schedule_options(table: dict[str, Any]) -> dict[str, Any]:
    for name in table:
        if name in _OF_SCHEDULES:
            own = _OF_SCHEDULES[name]
            raise ValueError(f"must not hold {name}, which is an option by itself: give `{own}`")
    return table


def _read_metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _METRIC.fullmatch(name):
            raise ValueError(
                "must be accuracy, top5 and the like, f1, f1_weighted, f1_micro or f1_binary, or "
                f"r2, rmse or mae; got {shown(name)}"
            )
    return names


def _read_limit(value: Any) -> int | str:
    if isinstance(value, str) and value == "auto":
        return "auto"
    try:
        parse_bytes(value)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"must be auto, a number of bytes, or text such as 500MB or 2GiB; got {shown(value)}"
        ) from None
    return value  # type: ignore[no-any-return]


def _read_checkpointing(value: Any) -> bool | int | str:
    """Return True for all blocks, n for every n-th, False for none, or auto."""
    if isinstance(value, bool) or (isinstance(value, str) and value == "auto"):
        return value
    if isinstance(value, str) and value in _CHECKPOINTING:
        return _CHECKPOINTING[value]
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or not 1 <= value < 2**63:
        kind = ValueError if isinstance(value, (int, str)) else TypeError
        raise kind(
            "must be all, none, auto or a number n for every n-th block; got " + shown(value)
        )
    return True if value == 1 else value


@dataclass(frozen=True, kw_only=True)
class TrainerOptions(Options):
    """Length, rate and precision of a training, and when it evaluates and saves.

    Raises:
        ConfigError: an option cannot be used, or two do not agree.

    Example:
        >>> TrainerOptions(steps=200, clip=0.5).steps
        200
    """

    batch_size: int | None = option(
        None, "Sequences or images computed together.", least=1, otherwise=8, on_resume="same"
    )
    accumulate: int = option(
        1, "Batches per optimizer step.", least=1, most=65536, on_resume="same"
    )
    epochs: int | None = option(
        None, "Passes over the training data; instead of `steps`.", least=1, excludes="steps"
    )
    steps: int | None = option(None, "Optimizer steps.", least=1, chosen="1000")
    schedule: str | None = option(
        None,
        "Schedule of the learning rate: constant, cosine, …",
        choices=_schedules,
        otherwise="warmup_cosine",
        needs=(NAMED_SCHEDULE, (PLATEAU, VALIDATION), (PLATEAU, "eval_every")),
    )
    schedule_options: dict[str, Any] = option(
        {},
        "Arguments of the schedule, such as power=2.",
        metavar="NAME=VALUE",
        read=_read_schedule_options,
        needs=(NAMED_SCHEDULE,),
    )
    lr: float | None = option(
        None,
        "Highest learning rate.",
        above=0,
        chosen="that of the optimizer",
        needs=(NAMED_SCHEDULE,),
    )
    min_lr: float | None = option(
        None,
        "Learning rate at the end of the schedule.",
        least=0,
        chosen="a tenth of `lr`",
        needs=(NAMED_SCHEDULE, _LOWEST_RATE),
    )
    warmup: int | None = option(
        None,
        "Steps of linear warm-up.",
        least=0,
        chosen="a twentieth of the run, at most 100",
        needs=(NAMED_SCHEDULE, _WARM_UP),
    )
    label_smoothing: float = option(
        0.0,
        "Share of each target that training spreads over all classes; evaluations do not.",
        least=0,
        below=1,
    )
    ema: float = option(
        0.0,
        "Decay of a running average of the weights, such as 0.999; evaluations, samples and "
        "exports use the average; 0 keeps none.",
        least=0,
        below=1,
    )
    clip: float = option(1.0, "Largest global norm of the gradients; 0 switches it off.", least=0)
    clip_value: float = option(
        0.0, "Largest magnitude of a gradient's element; 0 switches it off.", least=0
    )
    seed: int = option(0, "Seed of initial weights and of shuffling.", least=0, on_resume="same")
    precision: str = option(
        "f32",
        "Operands of matrix multiplications; all else stays f32. tf32 is for CUDA, other devices "
        "compute in f32. With f16 the loss is scaled, and steps whose gradients overflow are "
        "skipped.",
        choices=PRECISIONS,
    )
    checkpointing: bool | int | str | None = option(
        None,
        "Blocks that keep only their inputs for the backward pass and compute the rest again: all, "
        "none, a number n for every n-th, or auto for as few as fit into the memory limit.",
        metavar="BLOCKS",
        chosen="none; with `memory_limit`: auto",
        read=_read_checkpointing,
        bare="all",
    )
    memory_limit: int | str | None = option(
        None,
        "Limit of the memory that the run plans, such as 2GiB; auto is nine tenths of the device's "
        "free memory.",
        metavar="BYTES",
        chosen="the device's free memory",
        read=_read_limit,
    )
    eval_every: int | None = option(
        None,
        "Steps between evaluations; 0 evaluates at the end only.",
        least=0,
        chosen="a tenth of the run",
        needs=(VALIDATION,),
        on_resume="free",
    )
    eval_batches: int | None = option(
        None,
        "Batches per evaluation.",
        least=1,
        chosen="all",
        needs=(VALIDATION,),
        on_resume="free",
    )
    save_every: int | None = option(
        None,
        "Steps between checkpoints; 0 saves at the end only.",
        least=0,
        chosen="a fifth of the run",
        needs=(CHECKPOINTS,),
        on_resume="free",
    )
    keep: int | None = option(
        None,
        "Newest checkpoints that are kept.",
        least=1,
        otherwise=2,
        needs=(CHECKPOINTS,),
        on_resume="free",
    )
    keep_best: bool | None = option(
        None,
        "Keep the checkpoint with the lowest validation loss as well, in the folder best.",
        otherwise=True,
        needs=(CHECKPOINTS, VALIDATION),
        on_resume="free",
    )
    patience: int = option(
        0,
        "Evaluations without a lower validation loss after which the run ends; 0 is no limit.",
        least=0,
        needs=(VALIDATION, "eval_every"),
    )
    min_delta: float = option(
        0.0,
        "Decrease of the validation loss that counts as progress.",
        least=0,
        needs=(VALIDATION, PROGRESS),
    )
    metrics: tuple[str, ...] = option(
        (),
        "Metrics that evaluations compute besides the loss, such as accuracy, top5 and f1.",
        flag="scores",
        read=_read_metrics,
        needs=(VALIDATION,),
        on_resume="free",
    )
    mfu: bool = option(
        False,
        "Measure the device's peak speed first, and report the share that the training reaches.",
        on_resume="free",
    )
    distributed: str = option(
        "auto",
        "Ranks that share every batch: those that mpiexec started (auto, or mpi, which needs MPI), "
        "or none.",
        choices=("auto", "mpi", "none"),
        on_resume="free",
    )
    sync_every: int = option(
        0,
        "Steps that each rank takes by itself between averages of the weights (DiLoCo), for slow "
        "networks; 0 sums the gradients of every step.",
        least=0,
    )
    outer_lr: float = option(
        0.7, "Learning rate of the step that averages the ranks.", above=0, needs=(LOCAL,)
    )
    outer_momentum: float = option(
        0.9,
        "Nesterov momentum of the step that averages the ranks.",
        least=0,
        below=1,
        needs=(LOCAL,),
    )
    rank_timeout: float = option(
        40.0,
        "Seconds after which a rank that gives no sign of life, or does nothing while others wait "
        "for it, ends the job; 0 waits for ever.",
        least=0,
        on_resume="free",
    )
    zero: int = option(
        0,
        "What ranks divide between them: nothing (0), the optimizer's state (1), the gradients as "
        "well (2), or the parameters as well (3).",
        least=0,
        most=3,
        on_resume="free",
    )
    reduce_dtype: str = option(
        "f32",
        "Numbers that ranks send each other as gradients: f32, or bf16, which is half as much.",
        choices=("f32", "bf16"),
    )
    error_feedback: bool = option(
        False,
        "Add what rounding to bf16 loses to the gradients of the next step.",
        needs=(ROUNDED,),
    )
    prefetch: int | None = option(
        None,
        "Batches made ahead in a thread; 0 makes each when it is needed.",
        least=0,
        most=1024,
        otherwise=2,
        needs=(LOADER,),
        on_resume="free",
    )

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return what the schedule lacks, and PROGRESS where no evaluation is called the best."""
        name, takes = self.value("schedule"), self._schedule_takes
        got, found = f"`schedule`={name}", dict[str, tuple[str, str]]()
        if not self.patience and not self.value("keep_best"):
            found[PROGRESS] = "neither", "give `patience`"
        if not self.sync_every:
            found[LOCAL] = "`sync_every`=0", "give `sync_every`"
        if self.reduce_dtype != "bf16":
            found[ROUNDED] = f"`reduce_dtype`={self.reduce_dtype}", "give `reduce_dtype`=bf16"
        if "end" not in takes and "least" not in takes:
            found[_LOWEST_RATE] = got, "choose cosine or the like"
        if name in RISING and "warmup_steps" not in takes:
            found[_WARM_UP] = got, "choose another schedule"
        return found

    @property
    def _schedule_takes(self) -> list[str]:
        """The arguments of the schedule."""
        name = self.value("schedule")
        make = ReduceOnPlateau if name == PLATEAU else schedule_functions()[name]
        return list(inspect.signature(make).parameters)

    def check(self) -> None:
        """Raise `ConfigError` if the rates, the lengths or the schedule's options do not agree."""
        who = type(self).__name__
        own = ("schedule", *_OF_SCHEDULES)
        takes = [name for name in self._schedule_takes if name not in own]
        for name in self.schedule_options:
            if name not in takes:
                raise ConfigError(
                    f"{who}: `schedule_options` must be arguments of {self.value('schedule')}: "
                    f"{', '.join(takes) or 'it has none'}; got {name}"
                )
        if self.sync_every and (self.zero or self.reduce_dtype != "f32"):
            sent = "`zero`" if self.zero else "`reduce_dtype`"
            raise ConfigError(
                f"{who}: {sent} must be left out beside `sync_every`, with which ranks send no "
                f"gradients; got `sync_every`={self.sync_every}: leave one out"
            )
        if self.zero > 2 and self.ema:
            raise ConfigError(
                f"{who}: `ema` must be 0 beside `zero` 3, with which no rank holds the parameters "
                f"that are averaged; got {self.ema}: leave it out, or give `zero` 2"
            )
        if self.lr is not None and self.min_lr is not None and self.min_lr > self.lr:
            raise ConfigError(
                f"{who}: `min_lr` must be at most `lr`={self.lr:g}; got `min_lr`={self.min_lr:g}: "
                f"try `min_lr`={self.lr / 10:g}"
            )
        if self.steps is not None and self.warmup is not None and self.warmup > self.steps:
            raise ConfigError(
                f"{who}: `warmup` must not exceed `steps`; got `warmup`={self.warmup} and "
                f"`steps`={self.steps}: lower the one or raise the other"
            )

        self._check_local(who)

    def _check_local(self, who: str) -> None:
        """Raise for what ranks that train by themselves cannot do between their averages."""
        every = self.sync_every
        if not every:
            return
        if self.ema:
            raise ConfigError(f"{who}: `ema` must be 0 with `sync_every`; got {self.ema:g}")
        for name in ("eval_every", "save_every"):
            steps = getattr(self, name)
            if steps and steps % every:
                raise ConfigError(
                    f"{who}: `{name}` must be a multiple of `sync_every`={every}, as the ranks' "
                    f"weights differ in between; got {steps}: try {-(-steps // every) * every}"
                )

    def total_steps(self, batches_per_epoch: int, default_steps: int) -> int:
        """Return the optimizer steps of the whole run.

        Args:
            batches_per_epoch: batches in one pass over the training data.
            default_steps: used when neither epochs nor steps are set.

        Example:
            >>> TrainerOptions(epochs=3, accumulate=2).total_steps(10, 1000)
            15
        """
        if self.steps is not None:
            return self.steps
        if self.epochs is None:
            return default_steps
        return max(1, self.epochs * batches_per_epoch // self.accumulate)
