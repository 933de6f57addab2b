# SPDX-License-Identifier: MIT
"""The options of a resumed run, from those it began with and those given now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..train.config import COURSE_FIELDS, RUN_FIELDS, ConfigError, TrainConfig, option_name
from .sizes import default_seq_len, model_config

__all__ = ["merge"]


def merge(before: TrainConfig, changes: dict[str, Any], note: Callable[[str], None]) -> TrainConfig:
    """The configuration of a resumed run.

    Args:
        before: that of the run.
        changes: options given now, by field name.
        note: told what makes the rest of the run differ.

    Raises:
        ConfigError: an option would make it another run.
    """
    if "steps" in changes:
        changes = {"epochs": None, **changes}
    elif "epochs" in changes:
        changes = {"steps": None, **changes}
    changes = dict(changes)
    for name in RUN_FIELDS:
        # The text may have moved; whether it is the same is seen by its tokens.
        if name == "text" or name not in changes:
            continue
        was, now = getattr(before, name), changes.pop(name)
        if was != now and not _same_run(before, name, now):
            raise ConfigError(
                f"{option_name(name)} cannot change when a run is resumed; it was "
                f"{'not given' if was is None else was} and is now {now}: leave the option out, "
                "or start another run in another --artifact-dir"
            )
    config = before.replace(**changes)
    for name in COURSE_FIELDS:
        was, now = getattr(before, name), getattr(config, name)
        if was != now:
            note(
                f"note: {option_name(name)} was {was} and is now {now}: "
                "the rest of the run differs from an uninterrupted one"
            )
    return config


def _same_run(before: TrainConfig, name: str, value: Any) -> bool:
    """Whether an option says what the run had chosen anyway."""
    try:
        return _chosen(before.replace(**{name: value})) == _chosen(before)
    except ConfigError:
        return False


def _chosen(config: TrainConfig) -> tuple[Any, ...]:
    """What makes a run, with the choices that were left open made."""
    arch, sizes = model_config(config, vocab_size=257)
    seq_len = default_seq_len(config, sizes.context)
    stride = config.stride
    if stride is None and config.epochs is not None:
        stride = seq_len
    text = (config.tokenizer, config.field, config.pair_fields, config.separator, config.packing)
    others = (*text, config.optimizer, config.batch_size, config.accumulate, config.seed)
    return arch, sizes, seq_len, stride, others, config.val_fraction
