# SPDX-License-Identifier: MIT
"""The options that one object reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..checks import choice
from ..errors import ConfigError
from .agreement import check_known, check_needs
from .fields import options_of, plain

__all__ = ["Options"]

_O = TypeVar("_O", bound="Options")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that one object reads: the base of frozen dataclasses of `option` fields.

    Raises:
        ConfigTypeError: an option has a value of a wrong kind.
        ConfigError: an option has a value out of range, or two do not agree.
    """

    def __post_init__(self) -> None:
        who, own = type(self).__name__, options_of(type(self))
        for name, each in own.items():
            object.__setattr__(self, name, each.check(who, getattr(self, name)))
        for name, each in own.items():
            other = each.excludes
            if other and getattr(self, name) is not None and getattr(self, other) is not None:
                raise ConfigError(
                    f"{who}: `{name}` and `{other}` exclude each other; got `{name}`="
                    f"{getattr(self, name)} and `{other}`={getattr(self, other)}: give one of them"
                )
        check_needs(who, own, vars(self), self.missing())
        self.check()

    def value(self, name: str) -> Any:
        """Return an option's value, or the one that None stands for.

        Args:
            name: the option.
        """
        known = options_of(type(self))
        found = getattr(self, choice(type(self).__name__, "name", name, known))
        return known[name].otherwise if found is None else found

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return the needs of options that are not met; see `check_needs`. For overriding."""
        return {}

    def check(self) -> None:
        """Raise `ConfigError` if options do not agree; for classes to override."""

    def replace(self: _O, **changes: Any) -> _O:
        """Return a copy with other values of some options.

        Args:
            changes: new values by name.

        Raises:
            ConfigError: there is no such option, or the new value cannot be used.
        """
        check_known(type(self).__name__, options_of(type(self)), changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-ready values by name."""
        return {name: plain(getattr(self, name)) for name in options_of(type(self))}

    @classmethod
    def from_dict(cls: type[_O], values: Mapping[str, Any]) -> _O:
        """Return the options that `to_dict` wrote.

        Args:
            values: by name; missing options take their defaults.

        Raises:
            ConfigError: there is no such option, or a value cannot be used.
        """
        check_known(cls.__name__, options_of(cls), values)
        return cls(**values)
