# SPDX-License-Identifier: MIT
"""Putting adapters beside the layers of a model, and finding them there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ... import checks
from ...backend.device import alone
from ...errors import shown
from ..layers import Dropout, Linear
from ..module import Module
from ..swap import swap_modules
from .initial import check_start, original_weights, start
from .kinds import LoRAEmbedding, lora_class
from .layer import LoRALayer, check_numbers

__all__ = [
    "adapt",
    "adapters_of",
    "apply_lora",
    "heads_of",
    "layers_of",
    "need_adapters",
    "need_no_adapters",
]

_log = logging.getLogger("pyggml.nn")

ALL = "all-linear"
# What sends tokens to experts, by name.
_ROUTERS = ("gate", "shared_expert_gate")


def apply_lora(
    model: Module,
    rank: int = 8,
    alpha: float = 8.0,
    dropout: float = 0.0,
    targets: str | Iterable[str] = ("q_proj", "v_proj"),
    use_rslora: bool = False,
    use_dora: bool = False,
    *,
    init_lora_weights: bool | str = True,
    originals: Module | Mapping[str, Any] | None = None,
    loftq_iter: int = 1,
    rank_pattern: Mapping[str, int] | None = None,
    alpha_pattern: Mapping[str, float] | None = None,
) -> list[str]:
    """Put adapters beside layers of a model and freeze all else.

    Make the optimizer afterwards: of `model.parameters()` it takes those that are trained. A weight
    that is quantised (`models.load(path, keep_types=True)`) stays as it is, but for PiSSA.

    Args:
        model: changed in place.
        rank: of the adapters.
        alpha: scale times rank.
        dropout: probability that an element of an adapter's input is dropped while training; an
            embedding's adapter drops none.
        targets: names of layers, each the end of a path (`q_proj`) or a glob for all of it
            (`model.layers.1?.*`); or "all-linear": every `Linear` but the head, and a mixture's
            routers. Linear layers, embeddings, convolutions without groups, and the
            stacked matrices of experts can be named, and the head of a language model.
        use_rslora: scale is alpha / sqrt(rank) instead of alpha / rank.
        use_dora: train the norms of the weights' rows by themselves; for linear layers and
            convolutions.
        init_lora_weights: how the adapters begin. True: with a product of zero; "gaussian" too, of
            normal numbers; False: of random numbers. "pissa": as the largest singular values and
            vectors of the weight, which gives them up; a quantised weight is rounded again
            without them. "pissa_niter_4": likewise, found faster, by four rounds. "loftq": as those
            of what rounding took from a quantised weight; others begin at zero.
        originals: a model, or arrays by path: the weights before rounding, where they are
            quantised, for "pissa" and "loftq".
        loftq_iter: rounds of LoftQ; from the second on the weight is rounded again.
        rank_pattern: other ranks of some layers, by names as in targets; the first that fits.
        alpha_pattern: other alphas of some layers.

    Returns:
        The paths of the layers that were adapted.

    Raises:
        TypeError: model is no module, or targets are no names.
        ValueError: a target matches no layer that can be adapted, a head whose weight the loss
            multiplies itself, or a subclass; the model has adapters already; a number is out of
            range; originals are missing or of other shapes. Nothing has changed.

    Source: Hu et al. 2021, arXiv:2106.09685; see `LoRALinear`. PiSSA: Meng et al. 2024,
        arXiv:2404.02948; LoftQ: Li et al. 2023, arXiv:2310.08659. Names as in PEFT's LoraConfig.

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
    checks.flag(who, "use_rslora", use_rslora)
    checks.flag(who, "use_dora", use_dora)
    Dropout(dropout)  # raises for what is no probability, before anything changes
    chosen = check_start(who, init_lora_weights)
    rounds = checks.whole(who, "loftq_iter", loftq_iter, 1)
    need_no_adapters(who, model)
    paths = _chosen(who, model, targets)
    ranks = _by_path(who, "rank_pattern", rank_pattern, paths)
    for target, own_rank in (rank_pattern or {}).items():
        checks.whole(who, f"rank_pattern[{target!r}]", own_rank, 1)
    alphas = _by_path(who, "alpha_pattern", alpha_pattern, paths)
    modules: dict[str, Any] = {path: m for path, m in model.named_modules() if path in set(paths)}
    numbers: dict[str, tuple[int, float]] = {}
    for path in paths:
        own = check_numbers(who, ranks.get(path, rank), alphas.get(path, alpha))
        made = lora_class(modules[path])
        assert made is not None
        made.check(who, modules[path], own[0], path)
        if use_dora:
            made.check_dora(who, path)
        numbers[path] = own
    tied = _tied(model, paths)
    with alone():  # other threads compute with all adapters, or with none
        weights = original_weights(who, chosen, {p: modules[p] for p in paths}, originals)
        model.freeze()
        adapt(model, numbers, dropout, use_rslora, use_dora)
        done: set[int] = set()
        for path, layer in adapters_of(model).items():
            if id(layer) not in done:
                start(layer, chosen, weights.get(path), rounds)
                done.add(id(layer))
    if tied:
        _log.warning(
            "%s: %s is the head, too: its adapter changes both, and llama.cpp applies it only when"
            " it is merged", who, tied,
        )  # fmt: skip
    return paths


def adapt(
    model: Module,
    adapters: Mapping[str, tuple[int, float]],
    dropout: float = 0.0,
    use_rslora: bool = False,
    use_dora: bool = False,
) -> None:
    """Put an adapter beside each named layer; one that has several paths gets one adapter.

    Args:
        model: changed in place.
        adapters: rank and alpha by path.
        dropout: see `apply_lora`.
        use_rslora: see `apply_lora`.
        use_dora: see `apply_lora`.
    """
    modules = dict(model.named_modules())
    swaps: dict[int, Module] = {}
    for path, (rank, alpha) in adapters.items():
        found: Any = modules[path]
        kind = lora_class(found)
        assert kind is not None
        if id(found) not in swaps:
            share = 0.0 if kind is LoRAEmbedding else dropout
            swaps[id(found)] = kind(found, rank, alpha, share, use_rslora, use_dora)
    swap_modules(model, swaps.get)


def adapters_of(model: Module) -> dict[str, LoRALayer]:
    """Return the adapted layers of a model, by path."""
    return {path: m for path, m in model.named_modules() if isinstance(m, LoRALayer)}


def layers_of(model: Module) -> dict[str, Any]:
    """Return the layers that adapters can be put beside, by path; not a head that is multiplied."""
    heads = heads_of(model)
    return {
        path: m
        for path, m in model.named_modules()
        if path and path not in heads and lora_class(m) is not None
    }


def need_no_adapters(who: str, model: Module) -> None:
    """Raise a ValueError if a model has adapters."""
    found = adapters_of(model)
    if found:
        raise ValueError(
            f"{who}: the model must have no LoRA adapters; got {len(found)}, such as that of "
            f"{next(iter(found))}: merge_lora(model) folds them into the weights, "
            "remove_lora(model) drops them, models.save_lora writes them alone"
        )


def need_adapters(who: str, model: Module) -> dict[str, LoRALayer]:
    """Return the adapted layers; raise a ValueError where there are none."""
    if not isinstance(model, Module):
        raise TypeError(f"{who}: model must be a Module; got {type(model).__name__}")
    found = adapters_of(model)
    if not found:
        raise ValueError(f"{who}: the model must have LoRA adapters; got none: apply_lora first")
    return found


def _chosen(who: str, model: Module, targets: str | Iterable[str]) -> list[str]:
    """The paths of the layers that targets name."""
    layers = {p: m for p, m in model.named_modules() if p and lora_class(m) is not None}
    linears = {path for path, m in layers.items() if isinstance(m, Linear)}
    if isinstance(targets, str):
        targets = [targets]
    wanted = list(targets) if checks.is_iterable(targets) else []
    if not wanted or not all(isinstance(target, str) for target in wanted):
        raise TypeError(f"{who}: targets must be names of layers; got {shown(targets)}")
    found: set[str] = set()
    for target in wanted:
        if target == ALL:
            routers = {path for path in linears if path.rpartition(".")[2] in _ROUTERS}
            matching = linears - _weights_of_heads(model) - routers
        else:
            matching = {path for path in layers if _matches(path, target)}
        if not matching:
            ends = sorted({path.rpartition(".")[2] for path in layers})
            raise ValueError(
                f"{who}: each target must match a layer that can be adapted; {target!r} matches "
                "none: the layers' names end in "
                f"{', '.join(ends[:12]) or 'nothing, as there are none'}"
            )
        found |= matching
    heads = found & heads_of(model)
    if heads:
        raise ValueError(
            f"{who}: the head cannot be adapted, as the loss multiplies its weight itself; got "
            f"{', '.join(sorted(heads))}: leave it out of targets"
        )
    for path, layer in layers.items():
        kind = lora_class(layer)
        assert kind is not None
        if path in found and type(layer) is not kind.kind:
            raise ValueError(
                f"{who}: adapted layers must be {kind.kind.__name__} itself; got {path}, a "
                f"{type(layer).__name__}, whose own forward would be lost: name the other "
                "layers in targets"
            )
    return [path for path in layers if path in found]


def _by_path(who: str, name: str, pattern: Any, paths: Iterable[str]) -> dict[str, Any]:
    """Return the numbers that a pattern has for layers, by path."""
    if pattern is None:
        return {}
    given = checks.mapping(who, name, pattern)
    found: dict[str, Any] = {}
    for path in paths:
        fitting = [value for target, value in given.items() if _matches(path, target)]
        if fitting:
            found[path] = fitting[0]
    for target in given:
        if not any(_matches(path, target) for path in paths):
            raise ValueError(
                f"{who}: {name} must name layers that are adapted; {target!r} matches none"
            )
    return found


def _weights_of_heads(model: Module) -> set[str]:
    """The paths of linear layers whose weight is the head's."""
    head = getattr(model, "head_weight", None)
    linears = ((path, m) for path, m in model.named_modules() if isinstance(m, Linear))
    return {path for path, linear in linears if linear.weight is head}


def heads_of(model: Module) -> set[str]:
    """Return the paths of layers whose weight the model multiplies without calling them."""
    if getattr(model, "adapts_head", False):
        return set()
    head = getattr(model, "head_weight", None)
    tables = {
        path
        for path, m in model.named_modules()
        if head is not None and lora_class(m) is not None and getattr(m, "weight", None) is head
    }
    return tables


def _tied(model: Module, paths: Iterable[str]) -> str | None:
    """Return the path of an embedding that is the head, too."""
    head, modules = getattr(model, "head_weight", None), dict(model.named_modules())
    for path in paths:
        module: Any = modules[path]
        if head is not None and not isinstance(module, Linear) and module.weight is head:
            return path
    return None


def _matches(path: str, target: str) -> bool:
    return path == target or path.endswith(f".{target}") or fnmatchcase(path, target)
