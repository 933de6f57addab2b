# SPDX-License-Identifier: MIT
"""Parameter groups of a model: by kind, by name pattern and by depth."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from .. import checks
from .groups import Model, need_model

__all__ = ["Rule", "decay_groups", "layerwise_lr", "muon_groups", "param_groups"]

Rule = tuple[str | re.Pattern[str], Mapping[str, Any]]

# What is made of the last layer, by the names that models of text and images give it.
_HEAD = re.compile(r"(^|\.)(lm_head|head|classifier|score)\.")


def decay_groups(
    model: Model, weight_decay: float = 0.01, decay_embeddings: bool = False
) -> list[dict[str, Any]]:
    """Split a model's parameters for an optimizer: matrices decay, the others do not.

    The others are scales, biases and embedding tables, learned positions among them. A head that is
    tied to the embedding table is that table, and does not decay either.

    Args:
        model: whose parameters.
        weight_decay: of the matrices.
        decay_embeddings: count embedding tables, and with them a tied head, among the matrices, as
            nanoGPT does.

    Returns:
        Two groups with names: decayed, then not decayed.

    Raises:
        TypeError: the model is no module.
        ValueError: weight_decay is no number of at least 0, or decay_embeddings no bool.

    Example:
        >>> [len(g["params"]) for g in decay_groups(Linear(2, 3))]
        [1, 1]
    """
    weight_decay = checks.f32("decay_groups", "weight_decay", weight_decay, 0.0)
    checks.flag("decay_groups", "decay_embeddings", decay_embeddings)
    embeddings = _embeddings("decay_groups", model)
    split: dict[bool, dict[str, Any]] = {
        True: {"params": [], "names": [], "weight_decay": weight_decay},
        False: {"params": [], "names": [], "weight_decay": 0.0},
    }
    for name, parameter in model.named_parameters():
        decays = parameter.ndim >= 2 and (decay_embeddings or id(parameter) not in embeddings)
        split[bool(decays)]["params"].append(parameter)
        split[bool(decays)]["names"].append(name)
    return [split[True], split[False]]


def _embeddings(where: str, model: Model) -> set[int]:
    """Return the ids of the embedding tables, also where the head shares one."""
    need_model(where, model)
    return {
        id(module.weight)
        for _, module in model.named_modules()
        if getattr(module, "is_embedding", False)
    }


def param_groups(
    model: Model,
    weight_decay: float = 0.01,
    rules: Sequence[Rule] = (),
    decay_embeddings: bool = False,
) -> list[dict[str, Any]]:
    """Divide a model's parameters for an optimizer, by kind and then by rules on their names.

    Matrices decay; scales, biases and embeddings, with them a tied head, do not, unless a rule says
    so.

    Args:
        model: whose parameters.
        weight_decay: of those that decay.
        rules: pairs of a pattern and what holds for the parameters whose names match: a dict with
            "weight_decay", "lr_scale" and what else the optimizer knows. A string is a glob for
            the whole name, "h.*.attn.*"; a compiled regular expression is searched for. All rules
            that match apply; a later one prevails.
        decay_embeddings: count embedding tables among the matrices.

    Returns:
        Groups with names, for every set of options one.

    Raises:
        ValueError: a pattern matches no parameter, or weight_decay is no number of at least 0.
        TypeError: a rule is not such a pair, or the model no module.

    Example:
        >>> groups = param_groups(Linear(2, 3), rules=[("weight", {"lr_scale": 0.5})])
        >>> [(g["names"], g["weight_decay"], g["lr_scale"]) for g in groups]
        [(['weight'], 0.01, 0.5), (['bias'], 0.0, 1.0)]
    """
    checks.flag("param_groups", "decay_embeddings", decay_embeddings)
    return _grouped("param_groups", model, weight_decay, rules, decay_embeddings, ())


def _grouped(
    where: str,
    model: Model,
    weight_decay: float,
    rules: Sequence[Rule],
    decay_embeddings: bool,
    first: Sequence[Rule],
) -> list[dict[str, Any]]:
    """`param_groups` after some rules that need not match."""
    weight_decay = checks.f32(where, "weight_decay", weight_decay, 0.0)
    embeddings = _embeddings(where, model)
    rules = _checked_rules(where, rules)
    unused = [pattern for pattern, _ in rules]
    groups: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        decays = parameter.ndim >= 2 and (decay_embeddings or id(parameter) not in embeddings)
        options: dict[str, Any] = {
            "weight_decay": weight_decay if decays else 0.0,
            "lr_scale": 1.0,
        }
        for pattern, more in (*first, *rules):
            if _matches(pattern, name):
                options |= more
                unused = [p for p in unused if p is not pattern]
        key = tuple(sorted((str(k), repr(v)) for k, v in options.items()))
        group = groups.setdefault(key, {"params": [], "names": [], **options})
        group["params"].append(parameter)
        group["names"].append(name)
    if unused:
        known = [name for name, _ in model.named_parameters()]
        shown = unused[0] if isinstance(unused[0], str) else unused[0].pattern
        raise ValueError(
            f"{where}: every pattern must match a parameter; {shown!r} matches none of "
            f"{len(known)}, such as {', '.join(known[:3])}"
        )
    return list(groups.values())


def _checked_rules(where: str, rules: Any) -> list[Rule]:
    """Raise a TypeError unless they are pairs of a pattern and a dict."""
    wanted = "(pattern, options), a glob or a compiled regular expression and a dict"
    checked: list[Rule] = []
    for rule in checks.items(where, "rules", rules):
        pair = isinstance(rule, (tuple, list)) and len(rule) == 2
        if (
            not pair
            or not isinstance(rule[0], (str, re.Pattern))
            or not isinstance(rule[1], Mapping)
        ):
            raise TypeError(f"{where}: a rule must be {wanted}; got {rule!r}")
        checked.append((rule[0], rule[1]))
    return checked


def _matches(pattern: str | re.Pattern[str], name: str) -> bool:
    if isinstance(pattern, str):
        return fnmatchcase(name, pattern)
    return pattern.search(name) is not None


def muon_groups(
    model: Model, weight_decay: float = 0.1, rules: Sequence[Rule] = ()
) -> list[dict[str, Any]]:
    """`param_groups` for `Muon`: embeddings and the head have AdamW's rule.

    Args:
        model: whose parameters; a head is called lm_head, head, classifier or score.
        weight_decay: of the matrices.
        rules: see `param_groups`; {"rule": "adamw"} gives others AdamW's rule.

    Example:
        >>> [(g["names"], g["rule"]) for g in muon_groups(Embedding(5, 2))]
        [(['weight'], 'adamw')]
    """
    tables = _embeddings("muon_groups", model)
    names = [name for name, p in model.named_parameters() if id(p) in tables]
    first: list[Rule] = [(name, {"rule": "adamw"}) for name in names]
    first.append((_HEAD, {"rule": "adamw"}))
    return _grouped("muon_groups", model, weight_decay, rules, False, first)


def layerwise_lr(model: Model, decay: float) -> list[Rule]:
    """Rules for `param_groups`: the rate falls by `decay` from each block to the one below.

    A block is known by the first number in a parameter's name, "h.3.attn.weight". Embeddings lie
    below all blocks; what has no number, as the last norm and the head, lies above and keeps the
    full rate.

    Args:
        model: whose parameters.
        decay: factor from one block to the one below, in (0, 1].

    Returns:
        One rule for each parameter, with an "lr_scale".

    Raises:
        ValueError: decay is out of range.

    Source: Howard and Ruder 2018, arXiv:1801.06146; Clark et al. 2020, arXiv:2003.10555.

    Example:
        >>> model = Sequential(Linear(2, 2), Linear(2, 2))
        >>> [options["lr_scale"] for _, options in layerwise_lr(model, 0.5)]
        [0.25, 0.25, 0.5, 0.5]
    """
    decay = checks.f32("layerwise_lr", "decay", decay, most=1.0, above=0.0)
    tables = _embeddings("layerwise_lr", model)
    depth: dict[str, int | None] = {}
    for name, parameter in model.named_parameters():
        number = next((int(part) for part in name.split(".") if part.isdigit()), None)
        depth[name] = -1 if id(parameter) in tables else number
    blocks = sorted({n for n in depth.values() if n is not None and n >= 0})
    height = {n: i + 1 for i, n in enumerate(blocks)} | {-1: 0, None: len(blocks) + 1}
    top = len(blocks) + 1
    return [(name, {"lr_scale": decay ** (top - height[n])}) for name, n in depth.items()]
