# SPDX-License-Identifier: MIT
"""The optimizer that a configuration names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from .. import checks
from ..errors import ConfigError, shown
from ..nn import Module
from ..optim import (
    Muon,
    Optimizer,
    decay_groups,
    layerwise_lr,
    muon_groups,
    param_groups,
)
from .options import OptimizerOptions, read_scale

__all__ = ["make_optimizer"]


def make_optimizer(options: OptimizerOptions, model: Module, lr: float) -> Optimizer:
    """Return the optimizer of a model's parameters that the options name.

    Matrices decay; biases, scales and embeddings, with them a tied head, do not; see
    `pyggml.optim.param_groups`. Muon leaves embeddings and the head to AdamW's rule.

    Args:
        options: the optimizer's name, arguments, decay, and the rules for single parameters.
        model: the model whose parameters it updates.
        lr: highest learning rate.

    Raises:
        TypeError: an argument is of another kind.
        ConfigError: the options do not suit the optimizer, or a pattern matches no parameter.

    Example:
        >>> make_optimizer(OptimizerOptions(optimizer="lion"), model, 1e-3)
        Lion(lr=0.001, steps=0, groups=[...])
    """
    checks.instance("make_optimizer", "options", options, OptimizerOptions)
    checks.instance("make_optimizer", "model", model, Module)
    return options.make(_groups(options, model, options.kind is Muon), lr)


def _groups(options: OptimizerOptions, model: Module, muon: bool) -> list[dict[str, Any]]:
    """Return the parameters in groups, by kind and by the rules."""
    rules = _rules(options, model)
    if muon:
        return muon_groups(model, options.weight_decay, rules)
    if not rules:
        return decay_groups(model, options.weight_decay)
    return param_groups(model, options.weight_decay, rules)


def _rules(options: OptimizerOptions, model: Module) -> list[Any]:
    """Return the rules for `param_groups`; factors on the learning rate multiply."""
    names = [name for name, _ in model.named_parameters()]

    def matching(option: str, pattern: str) -> list[str]:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise ConfigError(
                f"`{option}` must match the name of a parameter; {shown(pattern)} matches none of "
                f"{len(names)}, such as {', '.join(names[:2])} and {names[-1]}"
            )
        return found

    scales = dict.fromkeys(names, 1.0)
    if options.layer_lr_decay != 1:
        for pattern, rule in layerwise_lr(model, options.layer_lr_decay):
            scales[str(pattern)] *= rule["lr_scale"]
    for text in options.lr_scale:
        pattern, factor = read_scale(text)
        for name in matching("lr_scale", pattern):
            scales[name] *= factor
    kept = {name for pattern in options.no_decay for name in matching("no_decay", pattern)}
    rules: list[Any] = [(name, {"weight_decay": 0.0}) for name in names if name in kept]
    return rules + [(name, {"lr_scale": scale}) for name, scale in scales.items() if scale != 1]
