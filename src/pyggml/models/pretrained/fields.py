# SPDX-License-Identifier: MIT
"""Reading the fields of a `config.json`: each is used, or raises where it asks for more."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import FormatError, shown
from ...io import read_regular

__all__ = ["HFConfig", "read_json"]


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        FormatError: the file is missing, or is no JSON object.
    """
    try:
        content = json.loads(read_regular(file))
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file}: must be JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{file}: must be a JSON object; got {shown(content)}")
    return content


class HFConfig:
    """The fields of a `config.json`, checked when they are read.

    A field that is missing or null has the default of transformers' class, which the reader gives.

    Args:
        path: the file, for errors.
        values: its content.

    Attributes:
        path: the file.
        values: its content.

    Example:
        >>> given = HFConfig("config.json", {"hidden_size": 64})
        >>> given.size("hidden_size"), given.number("rope_theta", 10000.0)
        (64, 10000.0)
    """

    def __init__(self, path: Any, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values

    def error(self, key: str, wanted: str) -> FormatError:
        """Return the error for a field that should be another."""
        return FormatError(
            f"{self.path}: {key} must be {wanted}; got {shown(self.values.get(key))}"
        )

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field as it is; null is the default."""
        value = self.values.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number; without a default it must be there.

        Raises:
            FormatError: it is missing, no whole number, or below least.
        """
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"an integer >= {least}")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a finite number.

        Raises:
            FormatError: it is none.
        """
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, "a number")
        if not math.isfinite(value):
            raise self.error(key, "finite")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false.

        Raises:
            FormatError: it is neither.
        """
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def only(self, key: str, *values: Any) -> Any:
        """Return a field that may have these values, of which the first is the default.

        Raises:
            FormatError: it has another, which the model does not compute.
        """
        value = self.get(key, values[0])
        # 1 == True, and a list has no hash.
        if not any(type(value) is type(one) and value == one for one in values):
            wanted = " or ".join(json.dumps(one) for one in values)
            raise self.error(key, f"{wanted}, as the model computes nothing else")
        return value
