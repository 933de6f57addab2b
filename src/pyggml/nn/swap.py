# SPDX-License-Identifier: MIT
"""Replacing modules in a tree of modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from .module import Module

__all__ = ["Swaps", "swap_modules"]


class Swaps:
    """The number of swaps: a graph recorded before one may hold modules that are gone.

    Attributes:
        count: of this process.
    """

    count = 0


def swap_modules(module: Module, swap: Callable[[int], Module | None]) -> None:
    """Put other modules in the place of some below, also in lists, tuples and dicts.

    Args:
        module: changed in place.
        swap: gives the other one by the id of one, or None where it stays.
    """
    Swaps.count += 1
    _swap_below(module, swap)


def _swap_below(module: Module, swap: Callable[[int], Module | None]) -> None:
    # Private names, too: `forward` may call a child by one.
    for name, value in list(vars(module).items()):
        changed = _swapped(value, swap)
        if changed is not value:
            setattr(module, name, changed)
    for _, child in module.named_children():
        _swap_below(child, swap)


def _swapped(value: Any, swap: Callable[[int], Module | None]) -> Any:
    """Return an attribute with the swapped modules in it, or itself."""
    if isinstance(value, Module):
        return swap(id(value)) or value
    if isinstance(value, (list, tuple)):
        items = [_swapped(item, swap) for item in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        if isinstance(value, tuple):
            make = getattr(value, "_make", type(value))  # a named one takes its fields apart
            return make(items)
        changed = copy.copy(value)
        changed[:] = items
        return changed
    if isinstance(value, Mapping):
        pairs = {key: _swapped(item, swap) for key, item in value.items()}
        if all(pairs[key] is value[key] for key in pairs):
            return value
        if not isinstance(value, MutableMapping):
            return pairs
        same_kind = copy.copy(value)
        same_kind.update(pairs)
        return same_kind
    return value
