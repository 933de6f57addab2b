# SPDX-License-Identifier: MIT
"""The options that runs of all kinds share: machine, optimizer, results."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..backend.device import Device, set_default_device, set_threads
from ..backend.device import device as find_device
from ..errors import BackendError, ConfigError, ConfigTypeError, reason, shown
from ..nn import Parameter
from ..optim import Optimizer, optimizers
from ..options import Options, option
from ..tensors import zeros
from ..train.options import VALIDATION, TrainerOptions
from ..train.schedule import check_schedule_options

__all__ = [
    "EXPORTS",
    "MachineOptions",
    "OptimizerOptions",
    "OutputOptions",
    "check_agreement",
    "read_scale",
]

EXPORTS = ("best", "last")
# Arguments of optimizers that are options by themselves.
_OF_OPTIMIZERS = ("lr", "weight_decay", "fused_update")
_BETAS = "an optimizer with a second beta"
_BETA1 = 0.9


def _optimizers() -> list[str]:
    return sorted(optimizers())


def read_scale(text: str) -> tuple[str, float]:
    """Return the pattern and the factor of a text PATTERN=FACTOR.

    Args:
        text: the text.

    Raises:
        ValueError: the text is not of this form, or the factor is negative.

    Example:
        >>> read_scale("lm_head.*=0.5")
        ('lm_head.*', 0.5)
    """
    pattern, _, number = text.rpartition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = -1.0
    if not pattern or not 0 <= factor < math.inf:
        raise ValueError(
            f"must be PATTERN=FACTOR with a factor >= 0; got {shown(text)}: try lm_head.*=0.5"
        )
    return pattern, factor


def _read_scales(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        read_scale(text)
    return texts


def _read_optimizer_options(table: dict[str, Any]) -> dict[str, Any]:
    for name in _OF_OPTIMIZERS:
        if name in table:
            raise ValueError(f"must not hold {name}, which is an option by itself: give `{name}`")
    return table


@dataclass(frozen=True, kw_only=True)
class MachineOptions(Options):
    """The device and the threads of a run.

    Example:
        >>> MachineOptions(device="cpu", threads=2).threads
        2
    """

    device: str = option("auto", "Device: auto, cpu, cuda:0, metal; see pyggml devices.")
    threads: int | None = option(
        None, "CPU threads.", least=1, chosen="OMP_NUM_THREADS, or all cores open to the process"
    )

    def choose(self) -> Device:
        """Make device and threads the default ones, and return the device.

        Raises:
            ConfigError: there is no such device, or there are too many threads.
        """
        try:
            where = find_device(self.device)
        except BackendError as error:
            raise ConfigError(f"`device`: {reason(error)}") from error
        set_default_device(where)
        if self.threads is not None:
            try:
                set_threads(self.threads)
            except ValueError as error:
                raise ConfigError(f"`threads` {reason(error).removeprefix('n ')}") from error
        return where


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Options):
    """The optimizer by name, and its rules for single parameters.

    The learning rate is an option of the trainer, which makes the schedule.

    Example:
        >>> OptimizerOptions(optimizer="lion", weight_decay=0.2).optimizer
        'lion'
    """

    optimizer: str = option(
        "adamw", "Optimizer: sgd, adamw, lion, muon, …", choices=_optimizers, on_resume="same"
    )
    optimizer_options: dict[str, Any] = option(
        {},
        "Further arguments of the optimizer, such as momentum=0.9.",
        metavar="NAME=VALUE",
        read=_read_optimizer_options,
    )
    weight_decay: float = option(0.1, "Decoupled decay of the weight matrices.", least=0)
    no_decay: tuple[str, ...] = option(
        (),
        "Names of parameters without decay, such as '*attn*'; biases, scales and embeddings never "
        "decay.",
        metavar="PATTERN",
        needs=("weight_decay",),
    )
    lr_scale: tuple[str, ...] = option(
        (),
        "Factor on the learning rate of parameters by name, such as 'lm_head.*=0.5'.",
        metavar="PATTERN=FACTOR",
        read=_read_scales,
    )
    layer_lr_decay: float = option(
        1.0, "Factor on the learning rate from each block to the one below.", above=0, most=1
    )
    beta2: float | None = option(
        None,
        "Decay of the second moment, in optimizers that have one.",
        above=0,
        below=1,
        otherwise=0.99,
        needs=(_BETAS,),
    )
    fused_update: bool = option(
        False,
        "Update each parameter as soon as its gradient is complete, and keep no gradients; "
        "excludes clipping and accumulation.",
        on_resume="free",
    )

    @property
    def kind(self) -> Any:
        """The optimizer's class."""
        return optimizers()[self.optimizer]

    @property
    def takes(self) -> list[str]:
        """The arguments of the optimizer."""
        return list(inspect.signature(self.kind).parameters)

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return what the optimizer does not have: betas, or betas that are not given already."""
        if "betas" not in self.takes:
            return {_BETAS: (f"`optimizer`={self.optimizer}", "choose adamw or the like")}
        if "betas" in self.optimizer_options:
            return {_BETAS: ("betas in `optimizer_options`", "leave them out")}
        return {}

    def check(self) -> None:
        """Raise `ConfigError` where the optimizer does not take the arguments."""
        takes = [name for name in self.takes if name not in ("params", *_OF_OPTIMIZERS)]
        for name in self.optimizer_options:
            if name not in takes:
                raise ConfigError(
                    f"`optimizer_options` must be arguments of {self.kind.__name__}: "
                    f"{', '.join(takes)}; got {name}"
                )
        if self.optimizer_options:
            # The optimizer itself checks the values, on a parameter that is as small as can be.
            self.make([Parameter(zeros(1, 1, device="cpu"))], 1e-3)

    def make(self, params: Any, lr: float) -> Optimizer:
        """Return the optimizer of parameters.

        Args:
            params: tensors or groups of them.
            lr: highest learning rate.

        Raises:
            ConfigError: an argument does not suit the optimizer.
        """
        more: dict[str, Any] = {}
        if "betas" in self.takes:
            more["betas"] = (_BETA1, self.value("beta2"))
        more |= self.optimizer_options
        more = {name: tuple(v) if isinstance(v, list) else v for name, v in more.items()}
        if self.fused_update:
            more["fused_update"] = True
        try:
            made: Optimizer = self.kind(params, lr=lr, **more)
        except ConfigError:
            raise
        except (ValueError, TypeError, IndexError) as error:
            named = "`optimizer_options` of " if self.optimizer_options else "`optimizer`="
            kind = ConfigTypeError if isinstance(error, TypeError) else ConfigError
            raise kind(f"{named}{self.optimizer}: {reason(error)}") from error
        return made


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """The folder of results, the exported weights, the report and the logs.

    Example:
        >>> OutputOptions(artifact_dir="runs/1", export="best").export
        'best'
    """

    artifact_dir: str = option(
        "artifacts/llm", "Folder for all results.", is_path=True, metavar="DIR", on_resume="free"
    )
    export: str | None = option(
        None,
        "Weights in model.gguf: those of the best evaluation or of the last step.",
        choices=EXPORTS,
        chosen="last; with `patience`: best",
        needs=(("best", VALIDATION), ("best", "keep_best")),
        on_resume="free",
    )
    report: bool = option(
        True, "Draw the loss, and write the report with all curves.", on_resume="free"
    )
    tensorboard: bool = option(False, "Write TensorBoard's event files as well.", on_resume="free")
    wandb: str | None = option(
        None, "Project of Weights & Biases to log to.", metavar="PROJECT", on_resume="free"
    )

    def chosen_export(self, trainer: TrainerOptions) -> str:
        """Return the weights to export: those asked for, else the best where a run may end early.

        Args:
            trainer: the options of the run's trainer.

        Example:
            >>> OutputOptions().chosen_export(TrainerOptions(patience=3))
            'best'
        """
        if self.export is not None:
            return self.export
        return "best" if trainer.patience and trainer.value("keep_best") else "last"


def check_agreement(optimizer: OptimizerOptions, trainer: TrainerOptions) -> None:
    """Raise if the optimizer and the training do not agree.

    Args:
        optimizer: a part.
        trainer: a part.

    Raises:
        ConfigError: names the options and the cure.
    """
    check_schedule_options(trainer)
    if getattr(optimizer.kind, "needs_closure", False):
        _check_line_search(optimizer, trainer)
    if optimizer.fused_update:
        _check_fused_update(trainer)


def _check_line_search(optimizer: OptimizerOptions, trainer: TrainerOptions) -> None:
    """Raise on all that an optimizer with a line search cannot have."""
    given = {
        "clip": trainer.clip,
        "clip_value": trainer.clip_value,
        "weight_decay": optimizer.weight_decay,
        "layer_lr_decay": optimizer.layer_lr_decay != 1 and optimizer.layer_lr_decay,
        "lr_scale": " ".join(optimizer.lr_scale),
        "precision": trainer.precision == "f16" and trainer.precision,
    }
    off = {"layer_lr_decay": "`layer_lr_decay`=1", "precision": "`precision`=f32"}
    off["lr_scale"] = "no `lr_scale`"
    wrong = [name for name, value in given.items() if value]
    if wrong:
        got = ", ".join(f"`{name}`={given[name]}" for name in wrong)
        cure = ", ".join(off.get(name, f"`{name}`=0") for name in wrong)
        raise ConfigError(
            f"`optimizer`={optimizer.optimizer} searches along a line: it needs the gradients as "
            f"they are, and all parameters as one vector; got {got}: give {cure}"
        )


def _check_fused_update(trainer: TrainerOptions) -> None:
    """Raise on what needs all gradients at once."""
    reasons = {
        "clip": (trainer.clip, "0", "the norm needs all gradients before the first update"),
        "clip_value": (trainer.clip_value, "0", "it needs gradients that are kept"),
        "accumulate": (trainer.accumulate > 1 and trainer.accumulate, "1", "each batch updates"),
        "precision": (
            trainer.precision == "f16" and "f16",
            "bf16",
            "loss scaling must see all gradients before the first update",
        ),
    }
    for name, (value, cure, why) in reasons.items():
        if value:
            shown_value = f"{value:g}" if isinstance(value, float) else value
            raise ConfigError(
                f"`fused_update` excludes `{name}`, as {why}; got `{name}`={shown_value}: give "
                f"`{name}`={cure}, or leave `fused_update` out"
            )
