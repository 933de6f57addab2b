# SPDX-License-Identifier: MIT
"""The options of a resumed run, from those it began with and those given now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConfigError, FormatError
from ..io.names import portable
from ..io.sealed import read_sealed
from ..options import options_of, plain
from ..train.checkpoints.folders import STATE
from .configuration import Configuration
from .llm_config import LLMConfig
from .sizes import default_seq_len, model_config

__all__ = ["compare", "identity", "merge", "recorded"]

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


def recorded(config: Configuration) -> dict[str, Any]:
    """Return the options of a run that its checkpoints hold: all but those that change nothing.

    Args:
        config: of the run.
    """
    options = config.options().items()
    values = {name: plain(config[name]) for name, each in options if each.on_resume != "free"}
    return dict(portable(values))


def compare(
    checkpoint: Path,
    config: Configuration,
    changes: Mapping[str, Any],
    path: Path,
    note: Callable[[str], None],
) -> None:
    """Tell which options of a run's `config.json` are others than those of its checkpoint.

    Args:
        checkpoint: that the run continues from.
        config: of the resumed run.
        changes: options given now, which `merge` has compared.
        path: the run's `config.json`.
        note: called with a line for each option that makes the rest of the run differ.

    Raises:
        FormatError: an option would make it another run.
    """
    now, options = recorded(config), config.options()
    for name, was in (read_sealed(checkpoint / STATE)["recipe"] or {}).items():
        if name not in now or name in changes or was == now[name]:
            continue
        if options[name].on_resume == "same":
            part = next(part for part, kind in config.parts().items() if name in options_of(kind))
            raise FormatError(
                f"{path}: train.{part}.{name} must be {was}, as in {checkpoint}; got {now[name]}:"
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
