# SPDX-License-Identifier: MIT
"""Names of files that are not UTF-8: in the JSON and TOML files of a run, and where none fits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ..errors import shown

__all__ = ["check_unicode", "original", "portable"]

# A table with this key alone stands for a text: its bytes, in percent-encoding.
_KEY = "percent"


def check_unicode(who: str, name: str, value: str, cure: str) -> None:
    """Raise for a text that cannot be written in UTF-8, as the name of a file may be.

    Args:
        who: what was called.
        name: of the argument.
        value: the text.
        cure: what to do.

    Raises:
        ValueError: it holds half a pair of surrogates.

    Example:
        >>> check_unicode("CNNConfig", "labels", "café", "rename the class")
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{who}: {name} must be Unicode; got {shown(value)}: {cure}") from None


def portable(value: Any) -> Any:
    """Return a value in which a text that is not Unicode is a table `{"percent": "caf%E9.txt"}`.

    Args:
        value: JSON-ready values, nested at will.

    Example:
        >>> portable({"text": ["a.txt", "caf\\udce9.txt"]})
        {'text': ['a.txt', {'percent': 'caf%E9.txt'}]}
    """
    if isinstance(value, Mapping):
        return {key: portable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [portable(each) for each in value]
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return {_KEY: quote_from_bytes(os.fsencode(value))}
    return value


def original(value: Any) -> Any:
    """Return the value that `portable` was given.

    Args:
        value: what a file holds.

    Example:
        >>> original({"text": [{"percent": "caf%E9.txt"}]})
        {'text': ['caf\\udce9.txt']}
    """
    if isinstance(value, Mapping):
        if list(value) == [_KEY] and isinstance(value[_KEY], str):
            return os.fsdecode(unquote_to_bytes(value[_KEY]))
        return {key: original(each) for key, each in value.items()}
    return [original(each) for each in value] if isinstance(value, list) else value
