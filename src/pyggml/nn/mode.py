# SPDX-License-Identifier: MIT
"""The mode of a computation, training or not, beside the flags that its modules have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..backend.scopes import Scope, Scopes

__all__ = ["in_mode", "mode_of"]

# The ids of modules, and whether they train.
_modes = Scopes()


def in_mode(model: Any, training: bool) -> Scope:
    """Set the mode of a model and all modules below it, inside the block and in this thread only.

    Their own flags, which other threads and the user read and write, stay as they are.

    Args:
        model: a module.
        training: whether `training` of it and of all below is True inside the block.

    Example:
        >>> layer = pg.nn.Dropout(0.5)
        >>> with in_mode(layer, training=False):
        ...     layer(pg.ones(2)).tolist()
        [1.0, 1.0]
        >>> layer.training
        True
    """
    return Scope(_modes, (_ids(module for _, module in model.named_modules()), training))


def _ids(modules: Iterable[Any]) -> frozenset[int]:
    return frozenset(map(id, modules))


def mode_of(module: Any) -> bool | None:
    """Return the mode that the innermost computation of this thread gives a module, if any."""
    for modules, training in reversed(list(_modes)):
        if id(module) in modules:
            return bool(training)
    return None
