# SPDX-License-Identifier: MIT
"""An option: a dataclass field with its type, default, range and help."""

from __future__ import annotations

import dataclasses
import json
import os
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from .. import checks
from ..errors import ConfigError, ConfigTypeError, shown

__all__ = ["Option", "option", "options_of", "plain"]

_KINDS = {
    bool: "switch",
    int: "whole",
    float: "number",
    str: "text",
    tuple: "texts",
    dict: "table",
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option, as `option` describes it.

    Args:
        name: the field's name.
        kind: switch, whole, number, text, texts, table, or any where `read` does all.
        default: the default value; `dataclasses.MISSING` where the option must be given.
        help: one sentence or two, without the default and the range.
        may_be_none: None is a value, which stands for what `chosen` says.
        chosen: the value that the program chooses for None, in words.
        otherwise: the value that None stands for; see `Options.value`. An option whose default is
            of use has it, so that None tells that the option was not given.
        least: smallest value.
        most: largest value.
        above: every value is greater.
        below: every value is smaller.
        unit: of a number, such as "tokens".
        choices: the words allowed, or a function that returns them.
        metavar: the value's name in the help of a command.
        flag: the name in commands and configuration files, where it is another.
        is_path: a text may also be given as a path-like object.
        may_be_empty: the empty text is a value.
        read: takes a value of the kind, or of any kind, and returns what is kept.
        bare: the value of a flag that stands without one.
        excludes: an option that cannot be given beside this one.
        needs: what must be there for the option to be read: other options, or words that the
            object which reads the option explains; a pair (value, need) is for that value alone.
        on_resume: "same" for an option that a resumed run must keep; "noted" for one that may
            change, with a note that the rest of the run differs; "free" for others.
    """

    name: str = ""
    kind: str = "any"
    default: Any
    help: str = ""
    may_be_none: bool = False
    chosen: str = ""
    otherwise: Any = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""
    choices: Iterable[str] | Callable[[], Iterable[str]] | None = None
    metavar: str = ""
    flag: str = ""
    is_path: bool = False
    may_be_empty: bool = False
    read: Callable[[Any], Any] | None = None
    bare: str | None = None
    excludes: str = ""
    needs: tuple[str | tuple[Any, str], ...] = ()
    on_resume: str = "noted"

    @property
    def words(self) -> tuple[str, ...]:
        """The words allowed, if there is a list of them."""
        choices = self.choices() if callable(self.choices) else self.choices
        return tuple(choices or ())

    @property
    def usual(self) -> Any:
        """The default value, or the one that it stands for."""
        return self.otherwise if self.default is None else self.default

    @property
    def is_required(self) -> bool:
        """True if there is no default value."""
        return self.default is MISSING

    def check(self, who: str, value: Any) -> Any:
        """Return the value as the option keeps it.

        Args:
            who: the class whose option it is.
            value: the value to check.

        Raises:
            ConfigTypeError: the value is of a wrong kind.
            ConfigError: the value is out of range.

        Example:
            >>> Option(name="steps", kind="whole", default=8, least=1).check("Loop", 3)
            3
        """
        if value is None and self.may_be_none:
            return None
        if value is None and self.kind in ("texts", "table"):
            value = self.default
        try:
            value = self._of_kind(who, f"`{self.name}`", value)
        except TypeError as error:
            raise ConfigTypeError(str(error)) from None
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.read is None:
            return value
        try:
            return self.read(value)
        except (TypeError, ValueError) as error:
            kind = ConfigTypeError if isinstance(error, TypeError) else ConfigError
            raise kind(f"{who}: `{self.name}` {error}") from None

    def _of_kind(self, who: str, name: str, value: Any) -> Any:
        if self.kind == "switch":
            return checks.flag(who, name, value)
        if self.kind == "whole":
            return checks.whole(who, name, value, self.least, self.most)  # type: ignore[arg-type]
        if self.kind == "number":
            found = checks.number(
                who, name, value, self.least, self.most, above=self.above, below=self.below
            )
            if abs(found) > checks.F32_MAX:
                raise ValueError(f"{who}: {name} must be finite as float32; got {shown(value)}")
            return found
        if self.kind == "text":
            return self._text(who, name, value)
        if self.kind == "texts":
            several = (value,) if isinstance(value, (str, os.PathLike)) else value
            if not isinstance(several, (list, tuple)):
                raise TypeError(f"{who}: {name} must be a list of str; got {shown(value)}")
            return tuple(self._text(who, name, each) for each in several)
        return _read_table(who, name, value) if self.kind == "table" else value

    def _text(self, who: str, name: str, value: Any) -> str:
        if self.is_path and isinstance(value, os.PathLike):
            value = os.fsdecode(value)
        if self.choices is not None:
            return checks.choice(who, name, value, self.words)
        if not checks.text(who, name, value) and not self.may_be_empty:
            raise ValueError(f"{who}: {name} must not be empty; got ''")
        try:
            data = os.fsencode(value) if self.is_path else value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{who}: {name} must be valid Unicode; got {shown(value)}") from None
        if self.is_path and b"\0" in data:
            raise ValueError(f"{who}: {name} must name a file or a folder; got {shown(value)}")
        return str(value)


def option(default: Any, help: str, **details: Any) -> Any:
    """Return a dataclass field that is an option; its kind is that of the annotation.

    Args:
        default: the default value; `dataclasses.MISSING` for an option that must be given.
        help: one sentence or two, without the default and the range.
        details: further fields of `Option`: `least`, `most`, `above`, `below`, `unit`, `choices`,
            `chosen`, `otherwise`, `metavar`, `flag`, `is_path`, `may_be_empty`, `read`, `bare`,
            `excludes`, `needs`, `on_resume`.

    Raises:
        TypeError: there is no such detail.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Clip(Options):
        ...     clip: float = option(1.0, "Largest gradient norm; 0 switches it off.", least=0)
        >>> Clip(clip=2).clip
        2.0
    """
    metadata = {"option": Option(default=default, help=help, **details)}
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(kind: Any) -> Mapping[str, Option]:
    """Return the options of a class of options by name.

    Args:
        kind: a class below `Options`.

    Example:
        >>> options_of(Options)
        mappingproxy({})
    """
    found: Mapping[str, Option] = _options_of(kind)
    return found


@cache
def _options_of(kind: Any) -> Mapping[str, Option]:
    found: dict[str, Option] = {}
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        several = get_args(hints[field.name])
        is_union = get_origin(hints[field.name]) in (Union, types.UnionType)
        rest = [a for a in several if a is not type(None)] if is_union else [hints[field.name]]
        base: Any = rest[0] if len(rest) == 1 else None
        found[field.name] = dataclasses.replace(
            field.metadata["option"],
            name=field.name,
            kind=_KINDS.get(get_origin(base) or base, "any"),
            may_be_none=is_union and type(None) in several,
        )
    return types.MappingProxyType(found)


def _read_table(who: str, name: str, given: Any) -> dict[str, Any]:
    """Return names and values of a dict, or of texts NAME=VALUE whose values are JSON or text."""
    texts = isinstance(given, (list, tuple)) and all(isinstance(item, str) for item in given)
    if not texts and not isinstance(given, Mapping):
        raise TypeError(f"{who}: {name} must be a dict or a list of NAME=VALUE; got {shown(given)}")
    table: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {}
    for item in () if isinstance(given, Mapping) else given:
        key, equals, text = item.partition("=")
        table[key if equals else None] = _read_json(text)
    if not all(isinstance(key, str) and key.isidentifier() for key in table):
        raise ValueError(f"{who}: {name} must be NAME=VALUE; got {shown(given)}")
    for value in table.values():
        flat = value if isinstance(value, (list, tuple)) else (value,)
        if not all(isinstance(each, (bool, int, float, str)) for each in flat):
            raise TypeError(
                f"{who}: {name} must hold numbers, texts and lists of these; got {shown(value)}"
            )
    return {key: plain(value) for key, value in table.items()}


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """Return a value with lists in place of tuples, as JSON and TOML have it.

    Args:
        value: an option's value.

    Example:
        >>> plain((1, (2, 3)))
        [1, [2, 3]]
    """
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
