# SPDX-License-Identifier: MIT
"""Checks of options that must agree with one another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..optim import optimizers
from .checks import EXPORTS, PLATEAU, ConfigError

if TYPE_CHECKING:
    from .config import TrainConfig

__all__ = ["check_together"]


def check_together(config: TrainConfig) -> None:
    """Refuse options that do not agree with one another.

    Args:
        config: all of it, each option checked by itself.

    Raises:
        ConfigError: names the options and the cure.
    """
    if config.epochs is not None and config.steps is not None:
        raise ConfigError(
            f"--epochs and --steps exclude each other; got --epochs {config.epochs} and "
            f"--steps {config.steps}: give one of them"
        )
    if config.heads is not None and config.embd is not None and config.embd % config.heads:
        raise ConfigError(
            f"--heads must divide --embd; got --heads {config.heads} and --embd {config.embd}: "
            f"try --embd {_round_up(config.embd, config.heads)}"
        )
    if config.heads is not None and config.kv_heads is not None and config.heads % config.kv_heads:
        raise ConfigError(
            f"--kv-heads must divide --heads; got --kv-heads {config.kv_heads} and --heads "
            f"{config.heads}: try --kv-heads {math.gcd(config.heads, config.kv_heads)}"
        )
    if (
        config.context is not None
        and config.seq_len is not None
        and config.seq_len > config.context
    ):
        raise ConfigError(
            f"--seq-len must not exceed --context; got --seq-len {config.seq_len} and "
            f"--context {config.context}: lower the one or raise the other"
        )
    if config.steps is not None and config.warmup is not None and config.warmup > config.steps:
        raise ConfigError(
            f"--warmup must not exceed --steps; got --warmup {config.warmup} and "
            f"--steps {config.steps}: lower the one or raise the other"
        )

    if config.patience and not config.val_fraction:
        raise ConfigError(
            f"--patience needs a validation loss; got --patience {config.patience} and "
            "--val-fraction 0: hold some tokens back, or leave --patience out"
        )
    if config.schedule == PLATEAU and not config.val_fraction:
        raise ConfigError(
            "--schedule plateau needs a validation loss; got --val-fraction 0: hold some tokens "
            "back, or choose another schedule"
        )
    if getattr(optimizers()[config.optimizer], "needs_closure", False):
        _check_search(config)
    _check_export(config)
    _check_fused_update(config)


def _check_search(config: TrainConfig) -> None:
    """What an optimizer that searches along a line cannot have, all of it at once."""
    given = {
        "--clip": config.clip,
        "--clip-value": config.clip_value,
        "--weight-decay": config.weight_decay,
        "--layer-lr-decay": config.layer_lr_decay != 1 and config.layer_lr_decay,
        "--lr-scale": " ".join(config.lr_scale),
        "--precision": config.precision == "f16" and config.precision,
    }
    off = {"--layer-lr-decay": "--layer-lr-decay 1", "--precision": "--precision f32"}
    off["--lr-scale"] = "no --lr-scale"
    wrong = [name for name, value in given.items() if value]
    if wrong:
        got = ", ".join(f"{name} {given[name]}" for name in wrong)
        cure = ", ".join(off.get(name, f"{name} 0") for name in wrong)
        raise ConfigError(
            f"--optimizer {config.optimizer} searches along a line: it needs the gradients as they "
            f"are, and all parameters as one vector; got {got}: give {cure}"
        )


def _check_export(config: TrainConfig) -> None:
    """Whose weights are exported, and whether there will be such."""
    if config.export not in (None, *EXPORTS):
        raise ConfigError(f"--export must be best or last; got {config.export!r}")
    if config.export == "best" and not (config.keep_best and config.val_fraction):
        missing = "--val-fraction 0" if config.keep_best else "--no-keep-best"
        raise ConfigError(
            "--export best needs a validation loss and the checkpoint with the lowest; got "
            f"{missing}: leave that out, or give --export last"
        )


def _check_fused_update(config: TrainConfig) -> None:
    """What needs all gradients at once."""
    if config.fused_update and config.clip:
        raise ConfigError(
            "--fused-update excludes --clip, as the norm needs all gradients before the first "
            f"update; got --clip {config.clip:g}: give --clip 0"
        )
    if config.fused_update and config.clip_value:
        raise ConfigError(
            "--fused-update excludes --clip-value, which needs gradients that are kept; got "
            f"--clip-value {config.clip_value:g}: give one of them"
        )
    if config.fused_update and config.precision == "f16":
        raise ConfigError(
            "--fused-update excludes --precision f16, whose loss scaling must see all "
            "gradients before the first update: give --precision bf16 or f32"
        )
    if config.fused_update and config.accumulate > 1:
        raise ConfigError(
            "--fused-update excludes --accumulate, as it updates after every batch; got "
            f"--accumulate {config.accumulate}: give one of them"
        )


def _round_up(value: int, multiple: int) -> int:
    """The next multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple
