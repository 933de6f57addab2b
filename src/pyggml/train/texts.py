# SPDX-License-Identifier: MIT
"""Options that are texts: one, several, or paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .checks import ConfigError, option_name

__all__ = ["read_list", "read_path"]


def read_list(name: str, given: Any) -> tuple[str, ...]:
    """Several texts or paths; one alone is one of them.

    Args:
        name: of the field.
        given: what it was given.

    Raises:
        ConfigError: there is something else in it.

    Example:
        >>> read_list("scores", "accuracy")
        ('accuracy',)
    """
    items = (given,) if isinstance(given, (str, Path)) else given
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, (str, Path)) for i in items):
        raise ConfigError(
            f"{option_name(name)} must be a list of texts; got {given!r:.60}: "
            f"give {'file names' if name == 'text' else 'names'}"
        )
    return tuple(map(str, items))


def read_path(name: str, given: Any) -> str:
    """A text or a path, as text.

    Args:
        name: of the field.
        given: what it was given.

    Raises:
        ConfigError: it is neither.

    Example:
        >>> read_path("tokenizer", "chars")
        'chars'
    """
    if not isinstance(given, (str, Path)):
        raise ConfigError(f"{option_name(name)} must be text; got {given!r:.60}: give a path")
    return str(given)
