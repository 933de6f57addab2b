# SPDX-License-Identifier: MIT
"""Checks of what a run reads, and of the rules for single parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .checks import ConfigError, option_name

if TYPE_CHECKING:
    from .config import TrainConfig

__all__ = ["check_data", "read_scale"]

_PREFETCH_MAX = 1024


def check_data(config: TrainConfig) -> None:
    """Refuse options of text and of parameter groups that cannot be used.

    Args:
        config: all of it.

    Raises:
        ConfigError: names the option and the cure.
    """
    for name in ("field", "prompt_field", "completion_field", "separator", "cache_dir"):
        value = getattr(config, name)
        if value is None and name != "field":
            continue
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f"{option_name(name)} must be text that is not empty; got {value!r}: give it, or "
                "leave the option out"
            )
    if not isinstance(config.packing, bool):
        raise ConfigError(
            f"--packing must be on or off; got {config.packing!r}: give True or False"
        )
    if config.packing and config.stride is not None:
        raise ConfigError(
            f"--packing excludes --stride, as rows hold whole documents; got --stride "
            f"{config.stride}: give one of them"
        )
    if config.pair_fields is not None:
        _check_pairs(config, *config.pair_fields)
    prefetch = config.prefetch
    whole = isinstance(prefetch, int) and not isinstance(prefetch, bool)
    if not whole or not 0 <= prefetch <= _PREFETCH_MAX:
        raise ConfigError(
            f"--prefetch must be a whole number from 0 to {_PREFETCH_MAX}; got {prefetch!r}: try "
            "--prefetch 2, or 0 to make each batch when it is needed"
        )
    if not _is_number(config.label_smoothing) or not 0 <= config.label_smoothing < 1:
        raise ConfigError(
            "--label-smoothing must be a number of at least 0 and below 1; got "
            f"{config.label_smoothing!r}: try --label-smoothing 0.1"
        )
    if not _is_number(config.layer_lr_decay) or not 0 < config.layer_lr_decay <= 1:
        raise ConfigError(
            "--layer-lr-decay must be a number above 0 and at most 1; got "
            f"{config.layer_lr_decay!r}: try --layer-lr-decay 0.9, or 1 for one rate"
        )
    if "" in config.no_decay:
        raise ConfigError("--no-decay must not be empty: give a pattern of names, such as *embed*")
    for text in config.lr_scale:
        read_scale(text)


def _check_pairs(config: TrainConfig, prompt: str, completion: str) -> None:
    """Options that pairs of prompts and completions do not go with."""
    if prompt == completion:
        raise ConfigError(
            f"--prompt-field and --completion-field must be two columns; got {prompt!r} for both"
        )
    if not config.text:
        raise ConfigError("--prompt-field and --completion-field need --text: name the records")
    reasons = {
        "field": (config.field != "text", "each row has two texts"),
        "separator": (config.separator is not None, "each row is a document"),
        "stride": (config.stride is not None, "rows hold whole documents"),
        "cache_dir": (config.cache_dir is not None, "pairs are tokenized into memory"),
    }
    for name, (given, why) in reasons.items():
        if given:
            raise ConfigError(
                f"--prompt-field and --completion-field exclude {option_name(name)}, as {why}: "
                "leave one out"
            )


def read_scale(text: str) -> tuple[str, float]:
    """The pattern and the factor that a text says.

    Args:
        text: `PATTERN=FACTOR`.

    Raises:
        ConfigError: it says none.

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
        raise ConfigError(
            "--lr-scale must be PATTERN=FACTOR, a factor of at least 0; got "
            f"{text!r}: try --lr-scale lm_head.*=0.5"
        )
    return pattern, factor


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
