# SPDX-License-Identifier: MIT
"""Putting adapters beside the linear layers of a model, and finding them there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ... import checks
from ..layers import Dropout, Linear
from ..module import Module
from ..swap import swap_modules
from .layer import LoRALinear, check_numbers, check_rank

__all__ = [
    "adapt",
    "adapters_of",
    "apply_lora",
    "heads_of",
    "need_adapters",
    "need_no_adapters",
]

ALL = "all-linear"
# What sends tokens to experts, by name.
_ROUTERS = ("gate", "shared_expert_gate")


def apply_lora(
    model: Module,
    rank: int = 8,
    alpha: float = 8.0,
    dropout: float = 0.0,
    targets: str | Iterable[str] = ("q_proj", "v_proj"),
    rslora: bool = False,
) -> list[str]:
    """Put adapters beside linear layers of a model and freeze all else.

    Make the optimizer afterwards: of `model.parameters()` it takes those that are trained. A weight
    that is quantised (`models.load(path, keep_types=True)`) stays as it is.

    Args:
        model: changed in place.
        rank: of the adapters.
        alpha: scale times rank.
        dropout: probability that an element of an adapter's input is dropped while training.
        targets: names of layers, each the end of a path (`q_proj`) or a glob for all of it
            (`model.layers.1?.*`); or "all-linear": every `Linear` but the head, and a mixture's
            routers.
        rslora: scale is alpha / sqrt(rank) instead of alpha / rank.

    Returns:
        The paths of the layers that were adapted.

    Raises:
        TypeError: model is no module, or targets are no names.
        ValueError: a target matches no linear layer, the head, whose weight the loss multiplies
            itself, or a subclass of `Linear`; the model has adapters already; a number is out of
            range. Nothing has changed.

    Source: Hu et al. 2021, arXiv:2106.09685; see `LoRALinear`.

    Example:
        >>> model = Sequential(Linear(4, 8), Linear(8, 2))
        >>> apply_lora(model, rank=2, targets="all-linear")
        ['0', '1']
        >>> model.num_parameters(trainable_only=True)
        44
    """
    who = "apply_lora"
    if not isinstance(model, Module):
        raise TypeError(f"{who}: model must be a Module; got {type(model).__name__}")
    rank, alpha = check_numbers(who, rank, alpha)
    checks.flag(who, "rslora", rslora)
    Dropout(dropout)  # raises for what is no probability, before anything changes
    need_no_adapters(who, model)
    paths = _chosen(who, model, targets)
    modules: dict[str, Any] = dict(model.named_modules())
    for path in paths:
        check_rank(who, rank, modules[path].weight.shape, path)
    model.freeze()
    adapt(model, dict.fromkeys(paths, (rank, alpha)), dropout, rslora)
    return paths


def adapt(
    model: Module,
    adapters: Mapping[str, tuple[int, float]],
    dropout: float = 0.0,
    rslora: bool = False,
) -> None:
    """Put an adapter beside each named layer; one that has several paths gets one adapter.

    Args:
        model: changed in place.
        adapters: rank and alpha by path.
        dropout: see `apply_lora`.
        rslora: see `apply_lora`.
    """
    modules = dict(model.named_modules())
    swaps: dict[int, Module] = {}
    for path, (rank, alpha) in adapters.items():
        found: Any = modules[path]
        if id(found) not in swaps:
            swaps[id(found)] = LoRALinear(found, rank, alpha, dropout, rslora)
    swap_modules(model, swaps.get)


def adapters_of(model: Module) -> dict[str, LoRALinear]:
    """Return the adapted layers of a model, by path."""
    return {path: m for path, m in model.named_modules() if isinstance(m, LoRALinear)}


def need_no_adapters(who: str, model: Module) -> None:
    """Raise a ValueError if a model has adapters."""
    found = adapters_of(model)
    if found:
        raise ValueError(
            f"{who}: the model must have no LoRA adapters; got {len(found)}, such as that of "
            f"{next(iter(found))}: merge_lora(model) folds them into the weights, "
            "remove_lora(model) drops them, models.save_lora writes them alone"
        )


def need_adapters(who: str, model: Module) -> dict[str, LoRALinear]:
    """Return the adapted layers; raise a ValueError where there are none."""
    if not isinstance(model, Module):
        raise TypeError(f"{who}: model must be a Module; got {type(model).__name__}")
    found = adapters_of(model)
    if not found:
        raise ValueError(f"{who}: the model must have LoRA adapters; got none: apply_lora first")
    return found


def _chosen(who: str, model: Module, targets: str | Iterable[str]) -> list[str]:
    """The paths of the linear layers that targets name."""
    linears = {path: m for path, m in model.named_modules() if isinstance(m, Linear) and path}
    heads = heads_of(model)
    if isinstance(targets, str):
        targets = [targets]
    wanted = list(targets) if isinstance(targets, Iterable) else []
    if not wanted or not all(isinstance(target, str) for target in wanted):
        raise TypeError(f"{who}: targets must be names of layers; got {targets!r:.80}")
    found: set[str] = set()
    for target in wanted:
        if target == ALL:
            routers = {path for path in linears if path.rpartition(".")[2] in _ROUTERS}
            matching = set(linears) - heads - routers
        else:
            matching = {path for path in linears if _matches(path, target)}
        if not matching:
            ends = sorted({path.rpartition(".")[2] for path in linears})
            raise ValueError(
                f"{who}: each target must match a linear layer; {target!r} matches none: the "
                f"layers' names end in {', '.join(ends[:12]) or 'nothing, as there are none'}"
            )
        found |= matching
    if found & heads:
        raise ValueError(
            f"{who}: the head cannot be adapted, as the loss multiplies its weight itself; got "
            f"{', '.join(sorted(found & heads))}: leave it out of targets"
        )
    own = [path for path in linears if path in found and type(linears[path]) is not Linear]
    if own:
        raise ValueError(
            f"{who}: adapted layers must be Linear itself; got {own[0]}, a "
            f"{type(linears[own[0]]).__name__}, whose own forward would be lost: name the other "
            "layers in targets"
        )
    return [path for path in linears if path in found]


def heads_of(model: Module) -> set[str]:
    """Return the paths of linear layers whose weight the model multiplies without calling them."""
    head = getattr(model, "head_weight", None)
    linears = ((path, m) for path, m in model.named_modules() if isinstance(m, Linear))
    return {path for path, linear in linears if linear.weight is head}


def _matches(path: str, target: str) -> bool:
    return path == target or path.endswith(f".{target}") or fnmatchcase(path, target)
