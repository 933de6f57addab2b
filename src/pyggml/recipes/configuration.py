# SPDX-License-Identifier: MIT
"""The base of a recipe's configuration: options in parts, which can be given flat."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, get_type_hints

from .. import checks
from ..errors import ConfigError, ConfigTypeError, shown
from ..options import Option, Options, check_known, check_needs, options_of

__all__ = ["Configuration"]

_C = TypeVar("_C", bound="Configuration")


class Configuration:
    """The options of a whole run, put together from the parts that the class's annotations name.

    Each option is in one part, so that all can be given flat: `LLMConfig(steps=200, lr=1e-3)`
    sorts them into the parts. A part can also be given whole, as an object or as a dict.

    Args:
        given: options and parts by name.

    Raises:
        ConfigTypeError: an option has a value of a wrong kind.
        ConfigError: no part has such an option, a value is out of range, or two do not agree.
    """

    # Defaults of this run that differ from the part's own, by the names of options.
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    # Words for the values that this run chooses for None, where they differ.
    CHOSEN: ClassVar[Mapping[str, str]] = {}
    # Options of the parts that this run cannot use or sets itself.
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **given: Any) -> None:
        cls, parts = type(self), self.parts()
        flat = {name: value for name, value in given.items() if not cls._is_part(name, value)}
        check_known(cls.__name__, self.options(), flat, self.tables())
        values: dict[str, Any] = {}
        for name in given.keys() - flat.keys():
            values |= cls._read_part(name, given[name])
        values = self.merged(values, flat)
        # None stands for the default, also for that of the run.
        values = {n: v for n, v in values.items() if v is not None or n not in cls.DEFAULTS}
        values = self.merged(cls.DEFAULTS, values)
        for name, kind in parts.items():
            own = {n: values[n] for n in options_of(kind) if n in values}
            for each in options_of(kind).values():
                if each.is_required and each.name not in own:
                    raise ConfigError(f"{cls.__name__}: `{each.name}` must be given: {each.help}")
            object.__setattr__(self, name, kind(**own))
        check_needs(cls.__name__, self.options(), self.flat(), self.missing())
        self.check()

    @classmethod
    def _read_part(cls, name: str, given: Any) -> dict[str, Any]:
        """Return the options of a part that is given whole."""
        kind = cls.parts()[name]
        if isinstance(given, Options):
            checks.instance(cls.__name__, name, given, kind)
            # An object holds every option: those at their defaults were not asked for.
            given = {
                n: getattr(given, n)
                for n, own in options_of(kind).items()
                if getattr(given, n) != own.default
                or not (n in cls.LEFT_OUT or (own.default is None and n in cls.DEFAULTS))
            }
        known = {n: own for n, own in options_of(kind).items() if n not in cls.LEFT_OUT}
        check_known(f"{cls.__name__}: {name}", known, given)
        return dict(given)

    @classmethod
    def _is_part(cls, name: str, value: Any) -> bool:
        return name in cls.parts() and isinstance(value, (Mapping, Options))

    @classmethod
    def parts(cls) -> Mapping[str, type[Options]]:
        """Return the classes of the parts by name."""
        kind: Any = cls
        return _parts(kind)

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the options of all parts by name, with this run's defaults."""
        kind: Any = cls
        return _options(kind)

    @classmethod
    def tables(cls) -> list[str]:
        """Return the names under which a configuration file has a table."""
        return [*cls.parts(), *(n for n, o in cls.options().items() if o.kind == "table")]

    @classmethod
    def merged(cls, before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Merge options by name; later ones replace earlier ones, and remove those they exclude.

        Args:
            before: options by name.
            given: options by name, which win.

        Example:
            >>> Configuration.merged({"lr": 1.0, "clip": 0.0}, {"lr": 2.0})
            {'lr': 2.0, 'clip': 0.0}
        """
        for name, each in (("before", before), ("given", given)):
            checks.mapping(f"{cls.__name__}.merged", name, each)
        pairs = {(n, o.excludes) for n, o in cls.options().items() if o.excludes}
        pairs |= {(b, a) for a, b in pairs}
        dropped = {b for a, b in pairs if given.get(a) is not None}
        return {n: v for n, v in before.items() if n not in dropped} | dict(given)

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return the needs of options that the run does not meet; see `check_needs`."""
        return {}

    def check(self) -> None:
        """Raise `ConfigError` if options of several parts do not agree; for overriding."""

    def __getitem__(self, name: str) -> Any:
        for part, kind in self.parts().items():
            if name in options_of(kind):
                return getattr(getattr(self, part), name)
        raise KeyError(name)

    def flat(self) -> dict[str, Any]:
        """Return all options by name."""
        return {name: self[name] for name in self.options()}

    def replace(self: _C, **changes: Any) -> _C:
        """Return a copy with other values of some options.

        Args:
            changes: new values by name, or parts.

        Raises:
            ConfigError: there is no such option, or the new value cannot be used.
        """
        flat: dict[str, Any] = {}
        for name, value in changes.items():
            flat |= self._read_part(name, value) if self._is_part(name, value) else {name: value}
        return type(self)(**self.merged(self.flat(), flat))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the parts by name, each with its options as JSON-ready values."""
        return {
            part: {n: v for n, v in getattr(self, part).to_dict().items() if n in self.options()}
            for part in self.parts()
        }

    @classmethod
    def from_dict(cls: type[_C], values: Mapping[str, Any]) -> _C:
        """Return the configuration that `to_dict` wrote.

        Args:
            values: parts with their options, or options, by name; missing options take their
                defaults.

        Raises:
            ConfigError: there is no such option, or a value cannot be used.
        """
        if not isinstance(values, Mapping):
            raise ConfigTypeError(f"{cls.__name__}: options must be a dict; got {shown(values)}")
        flat = {n: v for n, v in values.items() if not cls._is_part(n, v)}
        check_known(cls.__name__, cls.options(), flat, cls.tables())
        return cls(**values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"{type(self).__name__}: use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        own = self.options()
        told = [f"{n}={value!r}" for n, value in self.flat().items() if value != own[n].default]
        return f"{type(self).__name__}({', '.join(told)})"


@cache
def _parts(cls: type[Configuration]) -> Mapping[str, type[Options]]:
    hints = get_type_hints(cls)
    return MappingProxyType(
        {n: k for n, k in hints.items() if isinstance(k, type) and issubclass(k, Options)}
    )


@cache
def _options(cls: type[Configuration]) -> Mapping[str, Option]:
    found: dict[str, Option] = {}
    for kind in cls.parts().values():
        own = {n: each for n, each in options_of(kind).items() if n not in cls.LEFT_OUT}
        twice = sorted(found.keys() & own.keys())
        if twice:
            raise TypeError(f"{cls.__name__}: an option must be in one part; {twice} are in two")
        found |= own
    found |= {
        n: dataclasses.replace(found[n], default=v, chosen="") for n, v in cls.DEFAULTS.items()
    }
    found |= {n: dataclasses.replace(found[n], chosen=v) for n, v in cls.CHOSEN.items()}
    return MappingProxyType(found)
