# SPDX-License-Identifier: MIT
"""The options of a resumed run, from those it began with and those given now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConfigError, FormatError
from ..io.sealed import read_sealed
from ..options import plain
from ..train.checkpoints.folders import STATE
from ..train.trainer import Trainer
from .configuration import Configuration
from .llm_config import LLMConfig
from .sizes import default_seq_len, model_config

__all__ = ["compare", "identity", "merge"]

_C = TypeVar("_C", bound=Configuration)


def merge(
    before: _C,
    changes: Mapping[str, Any],
    note: Callable[[str], None],
    identity: Callable[[_C], Any] = lambda config: config,
) -> _C:
    """Return the configuration of a resumed run.

    Args:
        before: that of the run.
        changes: options given now, by name.
        note: called with a line for each option that makes the rest of the run differ.
        identity: returns equal values for configurations of the same run, such as one with a
            default and one that gives the same value.

    Raises:
        ConfigError: an option would make it another run.
    """
    options, changes = before.options(), dict(changes)
    for name in [n for n in changes if n in options and options[n].on_resume == "same"]:
        was, now = before[name], changes.pop(name)
        try:
            is_same = now in (was, options[name].otherwise if was is None else was)
            is_same = is_same or identity(before.replace(**{name: now})) == identity(before)
        except ConfigError:
            is_same = False
        if not is_same:
            raise ConfigError(
                f"`{name}` cannot change when a run is resumed; it was "
                f"{'not given' if was is None else was} and is now {now}: leave the option out, "
                "or start another run in another `artifact_dir`"
            )
    config = before.replace(**changes)
    for name, each in options.items():
        if each.on_resume == "noted" and before[name] != config[name]:
            note(
                f"note: `{name}` was {before[name]} and is now {config[name]}: "
                "the rest of the run differs from an uninterrupted one"
            )
    return config


def compare(
    trainer: Trainer,
    config: Configuration,
    changes: Mapping[str, Any],
    path: Path,
    note: Callable[[str], None],
) -> None:
    """Tell which options of a run's `config.json` are others than those of its checkpoint.

    Args:
        trainer: has resumed from the checkpoint.
        config: of the resumed run.
        changes: options given now, which `merge` has compared.
        path: the run's `config.json`.
        note: called with a line for each option that makes the rest of the run differ.

    Raises:
        FormatError: an option would make it another run.
    """
    checkpoint, now = trainer.last_checkpoint, trainer.options.to_dict()
    assert checkpoint is not None
    for name, was in read_sealed(checkpoint / STATE)["config"].items():
        each = config.options().get(name)
        # What the run chose by itself follows from other options.
        if each is None or name in changes or plain(config[name]) != now.get(name):
            continue
        if each.on_resume == "free" or was == now[name]:
            continue
        if each.on_resume == "same":
            raise FormatError(
                f"{path}: train.trainer.{name} must be {was}, as in {checkpoint}; got {now[name]}:"
                " the file has changed since; put the value back"
            )
        note(
            f"note: `{name}` was {was} in {checkpoint} and is {now[name]} in {path}: "
            "the rest of the run differs from an uninterrupted one"
        )


def identity(config: LLMConfig) -> tuple[Any, ...]:
    """Return the choices that a resumed run must keep, with defaults filled in.

    Args:
        config: of the run.
    """
    arch, sizes = model_config(config, vocab_size=257)
    data, trainer = config.data, config.trainer
    seq_len = default_seq_len(config, sizes.context)
    stride = data.stride
    if stride is None and trainer.epochs is not None:
        stride = seq_len
    text = (data.tokenizer, data.value("field"), data.pair_fields, data.separator, data.in_rows)
    batches = (trainer.value("batch_size"), trainer.accumulate, trainer.seed, data.val_fraction)
    return arch, sizes, seq_len, stride, text, config.optimizer.optimizer, batches
