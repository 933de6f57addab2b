# SPDX-License-Identifier: MIT
"""Rows of a data set that a program gives instead of files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...checks import is_iterable
from ...data import read_records
from ...errors import ConfigError, ConfigTypeError, shown
from ...io import atomic_write

__all__ = ["Rows", "kept_rows", "rows_of", "write_rows"]

Rows = list[dict[str, Any]]
"""Rows as JSON has them."""


def rows_of(data: Any) -> Rows | None:
    """Return the rows that `data` holds, as JSON has them; None where it names files.

    Args:
        data: paths; or a Hugging Face `Dataset`, a data frame, or mappings from names to values.

    Raises:
        ConfigTypeError: the data are neither, or a row is no mapping or holds what JSON has not.
        ConfigError: there is no row.
    """
    if isinstance(data, (str, os.PathLike)):
        return None
    if isinstance(data, Mapping):
        cure = "give a list of mappings, one for each row"
        part = next((name for name in data if hasattr(data[name], "column_names")), None)
        if part is not None:
            cure = f"choose a part of it, such as data[{part!r}]"
        raise ConfigTypeError(f"`data` must be files or rows; got a mapping: {cure}")
    if not is_iterable(data):
        raise ConfigTypeError(
            f"`data` must be files or rows; got {shown(data)}: give paths, a Dataset, a data frame "
            "or a list of mappings"
        )
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # a data frame
        data = data.to_dict("records")
    elif not hasattr(data, "column_names"):
        data = list(data)
        if data and all(isinstance(each, (str, os.PathLike)) for each in data):
            return None
        for number, row in enumerate(data):
            if not isinstance(row, Mapping):
                raise ConfigTypeError(
                    f"`data`: row {number} must be a mapping from names to values; got "
                    f"{shown(row)}: give rows alone, or files alone"
                )
    found = []
    for number, row in enumerate(read_records(data)):
        try:
            text = json.dumps(row, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigTypeError(
                f"`data`: row {number} must hold texts, numbers, lists and mappings; {error}: "
                "leave other columns out"
            ) from error
        found.append(json.loads(text))
    if not found:
        raise ConfigError("`data` must hold at least one row; got none: give more")
    return found


def write_rows(path: Path, rows: Rows) -> None:
    """Write rows as JSONL.

    Args:
        path: of the file.
        rows: of `rows_of`.
    """
    with atomic_write(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _plain(value: Any) -> Any:
    """Return what JSON has for an array or a number of NumPy."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got a {type(value).__name__}")


def kept_rows(path: Path, data: Sequence[str]) -> Rows | None:
    """Return the rows that an earlier part of the run has kept; None where `data` names files.

    Args:
        path: of the run's own file of rows, which may have been moved with its folder.
        data: the option of this name.

    Raises:
        FormatError: the file is damaged.
    """
    if len(data) != 1 or not path.exists():
        return None
    given = Path(data[0])
    if given.name != path.name:
        return None
    if given.exists() and not given.samefile(path):
        return None
    return [dict(row) for row in read_records(path)]
