# SPDX-License-Identifier: MIT
"""Configurations in files: TOML, and the JSON that a run leaves."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import ConfigError
from ..io import atomic_write, read_regular
from ..io.names import original, portable
from ..options import options_of
from .configuration import Configuration
from .llm_config import LLMConfig

__all__ = ["read_config", "save_config"]


def read_config(path: str | Path, kind: type[Configuration] = LLMConfig) -> dict[str, Any]:
    """Return the options that a file gives, by name.

    Args:
        path: TOML, where names may have dashes, flat or in a table for each part; or JSON, such as
            a run's `config.json`.
        kind: the configuration whose options they are.

    Raises:
        TypeError: `path` is not a path.
        ConfigError: the file cannot be read, an option is unknown or given twice, or a value cannot
            be used.
        ModuleNotFoundError: Python 3.10 without tomli; names the extra.

    Example:
        >>> _ = Path("run.toml").write_text("steps = 200\\nlr = 0.001")
        >>> read_config("run.toml")
        {'steps': 200, 'lr': 0.001}
    """
    path = checks.path("read_config", "path", path)
    try:
        text = read_regular(path).decode()
    except OSError as error:
        raise ConfigError(f"`config`={path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"`config`={path} is not UTF-8 text ({error})") from error
    values = _from_json(text, path) if path.suffix == ".json" else _from_toml(text, path)
    names = {each.flag: name for name, each in kind.options().items() if each.flag}
    try:
        values = _named(values, names, list(kind.parts()))
        kind.from_dict({**_missing(kind), **values})
        return _flat(values, list(kind.parts()))
    except ConfigError as error:
        raise ConfigError(f"`config`={path}: {error}") from error


def _missing(kind: type[Configuration]) -> dict[str, Any]:
    """Return values for the options that must be given, which may follow outside the file."""
    needed = [n for n, each in kind.options().items() if each.is_required]
    return dict.fromkeys(needed, "given later")


def _named(values: Mapping[str, Any], names: Mapping[str, str], parts: list[str]) -> dict[str, Any]:
    """Return values by the names of options, also within the tables of parts."""
    found, spelled = dict[str, Any](), dict[str, str]()
    for key, value in values.items():
        name = str(key).replace("-", "_")
        is_part = name in parts and isinstance(value, Mapping)
        name = names.get(name, name)
        if name in spelled:
            raise _twice(name, f"{spelled[name]} and {key}")
        spelled[name] = str(key)
        found[name] = _named(value, names, []) if is_part else value
    return found


def _flat(values: Mapping[str, Any], parts: list[str]) -> dict[str, Any]:
    """Return values by the names of options, without the tables of parts."""
    found, places = dict[str, Any](), dict[str, str]()
    for name, value in values.items():
        is_part = name in parts and isinstance(value, Mapping)
        is_table = isinstance(value, Mapping)
        place = f"in [{name}]" if is_part else f"as [{name}]" if is_table else "at the top"
        for each, one in value.items() if is_part else ((name, value),):
            if each in places:
                raise _twice(each, f"it {places[each]} and {place}")
            found[each], places[each] = one, place
    return found


def _twice(name: str, where: str) -> ConfigError:
    return ConfigError(f"`{name}` must be given once; got {where}: leave one out")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, of whose equal names the last would win."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _twice(name, "it in the same object again")
        found[name] = value
    return found


def _from_json(text: str, path: Path) -> dict[str, Any]:
    try:
        values = original(json.loads(text, object_pairs_hook=_once))
    except ConfigError as error:
        raise ConfigError(f"`config`={path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"`config`={path} cannot be read as JSON ({error})") from error
    # A run's file has more than its options.
    if isinstance(values, dict) and isinstance(values.get("train"), dict):
        values = values["train"]
    if not isinstance(values, dict):
        raise ConfigError(f"`config`={path} must hold options by name; got {type(values).__name__}")
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
        values: dict[str, Any] = original(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"`config`={path} is not a TOML file ({error})") from error
    return values


def save_config(config: Configuration, path: str | Path) -> None:
    """Write a configuration as TOML with a table for each part, which `read_config` reads.

    Args:
        config: the configuration; options that are None or empty tables are left out.
        path: the file to create or replace.

    Raises:
        TypeError: an argument is of another kind.
        OSError: the file cannot be written.

    Example:
        >>> save_config(LLMConfig(steps=200), "run.toml")
    """
    checks.instance("save_config", "config", config, Configuration)
    path = checks.path("save_config", "path", path)
    lines: list[str] = []
    for part, values in portable(config.to_dict()).items():
        own = options_of(config.parts()[part])
        named = {own[n].flag or n: v for n, v in values.items() if v not in (None, {})}
        own_tables = [n for n, each in own.items() if each.kind == "table"]
        tables = {n: value for n, value in named.items() if n in own_tables}
        lines += ["", f"[{part}]"]
        lines += [f"{n} = {_toml(value)}" for n, value in named.items() if n not in tables]
        for name, table in tables.items():
            lines += ["", f"[{part}.{name}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
    with atomic_write(path, "w") as file:
        file.write("\n".join(lines[1:]) + "\n")


def _toml(value: Any) -> str:
    """Return a value as TOML spells it."""
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
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    # JSON's escapes are TOML's, but for the one character that JSON lets through.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
