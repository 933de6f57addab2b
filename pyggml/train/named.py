# SPDX-License-Identifier: MIT
"""The optimizer that a configuration names."""

from __future__ import annotations

import inspect
from typing import Any

from ..optim import Muon, Optimizer, decay_groups, muon_groups, optimizers
from .checks import ConfigError
from .config import TrainConfig
from .parts import need_config, need_model

__all__ = ["make_optimizer"]

_BETA1 = 0.9


def make_optimizer(config: TrainConfig, model: Any) -> Optimizer:
    """The run's optimizer over a model's parameters, of which matrices decay.

    Gains, shifts and embeddings, with them a tied head, do not; see `pyggml.optim.decay_groups`.

    Muon leaves embeddings and the head to AdamW's rule.

    Args:
        config: its name, options, rates and decay.
        model: whose parameters.

    Raises:
        TypeError: an argument is of another kind.
        ConfigError: the options do not suit the optimizer.

    Example:
        >>> make_optimizer(TrainConfig(optimizer="lion"), model)
        Lion(lr=0.002, steps=0, groups=[…])
    """
    need_model("make_optimizer", model)
    kind: Any = optimizers()[need_config("make_optimizer", config).optimizer]
    takes = inspect.signature(kind).parameters
    options: dict[str, Any] = {"betas": (_BETA1, config.beta2)} if "betas" in takes else {}
    for name, value in config.optimizer_options.items():
        if name not in takes:
            own = ("params", "lr", "weight_decay", "fused_update")
            raise ConfigError(
                f"--optimizer-options must be options of {kind.__name__}: "
                f"{', '.join(n for n in takes if n not in own)}; got {name}"
            )
        options[name] = tuple(value) if isinstance(value, list) else value
    if config.fused_update:
        options["fused_update"] = True
    groups = muon_groups if kind is Muon else decay_groups
    try:
        made: Optimizer = kind(groups(model, config.weight_decay), lr=config.lr, **options)
    except (ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"--optimizer {config.optimizer}: {error}") from error
    return made
