# SPDX-License-Identifier: MIT
"""Which parameters decay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ..tensor import Tensor

__all__ = ["decay_groups"]


class _Model(Protocol):
    """What is asked of a model; nn.Module has it."""

    def named_modules(self) -> Iterator[tuple[str, Any]]: ...

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...


def decay_groups(
    model: _Model, weight_decay: float = 0.01, decay_embeddings: bool = True
) -> list[dict[str, Any]]:
    """Split a model's parameters for an optimizer: matrices decay, gains and shifts do not.

    Args:
        model: whose parameters.
        weight_decay: of the matrices.
        decay_embeddings: count embedding tables among the matrices.

    Returns:
        Two groups with names: decayed, then not decayed.

    Example:
        >>> [len(g["params"]) for g in decay_groups(Linear(2, 3))]
        [1, 1]
    """
    embeddings = {
        id(module.weight)
        for _, module in model.named_modules()
        if getattr(module, "is_embedding", False)
    }
    split: dict[bool, dict[str, Any]] = {
        True: {"params": [], "names": [], "weight_decay": weight_decay},
        False: {"params": [], "names": [], "weight_decay": 0.0},
    }
    for name, parameter in model.named_parameters():
        decays = parameter.ndim >= 2 and (decay_embeddings or id(parameter) not in embeddings)
        split[decays]["params"].append(parameter)
        split[decays]["names"].append(name)
    return [split[True], split[False]]
