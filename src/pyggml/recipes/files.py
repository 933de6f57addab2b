# SPDX-License-Identifier: MIT
"""Configurations in files: TOML, and the JSON that a run leaves."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from ..checks import instance
from ..io import atomic_write
from ..train.checks import ConfigError
from ..train.config import TrainConfig
from ..train.need import need_path

__all__ = ["read_config", "save_config"]


def read_config(path: str | Path) -> dict[str, Any]:
    """The options that a file gives, by the names of `TrainConfig`'s fields.

    Args:
        path: TOML, where names may have dashes; or JSON, such as a run's `config.json`.

    Raises:
        TypeError: it is no path.
        ConfigError: it cannot be read, or holds an option that there is not, or that has a value
            it cannot have.
        ModuleNotFoundError: Python 3.10 without tomli; names the extra.

    Example:
        >>> read_config("run.toml")
        {'steps': 200, 'lr': 0.001}
    """
    path = need_path("read_config", "path", path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {path} is not UTF-8 text ({error})") from error
    values = _from_json(text, path) if path.suffix == ".json" else _from_toml(text, path)
    values = {str(name).replace("-", "_"): value for name, value in values.items()}
    try:
        TrainConfig.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"--config {path}: {error}") from error
    return values


def _from_json(text: str, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not a JSON file ({error})") from error
    # What a run leaves says more than its options.
    if isinstance(values, dict) and isinstance(values.get("train"), dict):
        values = values["train"]
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path} must hold options by name; got {type(values).__name__}")
    return values


def _from_toml(text: str, path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                'TOML files need tomli: pip install "pyggml[cli]"', name=error.name
            ) from error
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not a TOML file ({error})") from error
    return values


def save_config(config: TrainConfig, path: str | Path) -> None:
    """Write a configuration as TOML, which `read_config` reads back.

    Args:
        config: what to write; options that are left open are left out.
        path: the file to create or replace.

    Raises:
        TypeError: an argument is of another kind.
        OSError: it cannot be written.

    Example:
        >>> save_config(TrainConfig(steps=200), "run.toml")
    """
    instance("save_config", "config", config, TrainConfig)
    path = need_path("save_config", "path", path)
    values = {name: value for name, value in config.to_dict().items() if value not in (None, {})}
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    lines = [f"{name} = {_toml(value)}" for name, value in values.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
    with atomic_write(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    """A value as TOML spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        text = repr(value)
        return text if "." in text or "e" in text else text + ".0"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's escapes are TOML's, but for the one sign that JSON lets through.
    known = str(value).encode("utf-8", "replace").decode()
    return json.dumps(known, ensure_ascii=False).replace("\x7f", "\\u007f")
