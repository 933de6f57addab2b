# SPDX-License-Identifier: MIT
"""The optimizer that a configuration names."""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase
from typing import Any

from ..optim import (
    Muon,
    Optimizer,
    decay_groups,
    layerwise_lr,
    muon_groups,
    optimizers,
    param_groups,
)
from .arguments import check_model
from .checks import ConfigError
from .checks_data import read_scale
from .config import TrainConfig

__all__ = ["make_optimizer"]

_BETA1 = 0.9


def make_optimizer(config: TrainConfig, model: Any) -> Optimizer:
    """The run's optimizer over a model's parameters, of which matrices decay.

    Gains, shifts and embeddings, with them a tied head, do not; see `pyggml.optim.decay_groups`.

    Muon leaves embeddings and the head to AdamW's rule.

    Args:
        config: its name, options, rates and decay, and the rules for single parameters:
            `no_decay`, `lr_scale`, `layer_lr_decay`.
        model: whose parameters.

    Raises:
        TypeError: an argument is of another kind.
        ConfigError: the options do not suit the optimizer, or a pattern matches no parameter.

    Example:
        >>> make_optimizer(TrainConfig(optimizer="lion"), model)
        Lion(lr=0.002, steps=0, groups=[…])
    """
    check_model("make_optimizer", model)
    kind: Any = optimizers()[config.optimizer]
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
    groups = _groups(config, model, kind is Muon)
    try:
        made: Optimizer = kind(groups, lr=config.lr, **options)
    except (ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"--optimizer {config.optimizer}: {error}") from error
    return made


def _groups(config: TrainConfig, model: Any, muon: bool) -> list[dict[str, Any]]:
    """The parameters in groups, by kind and by the rules."""
    rules = _rules(config, model)
    if muon:
        return muon_groups(model, config.weight_decay, rules)
    if not rules:
        return decay_groups(model, config.weight_decay)
    return param_groups(model, config.weight_decay, rules)


def _rules(config: TrainConfig, model: Any) -> list[Any]:
    """Rules for `param_groups`; factors on the rate multiply."""
    names = [name for name, _ in model.named_parameters()]

    def matching(option: str, pattern: str) -> list[str]:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise ConfigError(
                f"{option} must match the name of a parameter; {pattern!r} matches none of "
                f"{len(names)}, such as {', '.join(names[:2])} and {names[-1]}"
            )
        return found

    scales = dict.fromkeys(names, 1.0)
    if config.layer_lr_decay != 1:
        for pattern, options in layerwise_lr(model, config.layer_lr_decay):
            scales[str(pattern)] *= options["lr_scale"]
    for text in config.lr_scale:
        pattern, factor = read_scale(text)
        for name in matching("--lr-scale", pattern):
            scales[name] *= factor
    kept = {name for pattern in config.no_decay for name in matching("--no-decay", pattern)}
    rules: list[Any] = [(name, {"weight_decay": 0.0}) for name in names if name in kept]
    return rules + [(name, {"lr_scale": scale}) for name, scale in scales.items() if scale != 1]
