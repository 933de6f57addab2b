# SPDX-License-Identifier: MIT
"""What the models' configurations share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

__all__ = ["ModelConfig"]

C = TypeVar("C", bound="ModelConfig")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model; the base of every configuration.

    Attributes:
        PRESETS: named sizes.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Build from a dict such as `to_dict` gives.

        Raises:
            ValueError: a key is unknown, or a value is out of range.
        """
        known = [field.name for field in fields(cls)]
        unknown = [key for key in values if key not in known]
        if unknown:
            raise ValueError(
                f"{cls.__name__}: the keys must be among {', '.join(known)}; got {unknown}"
            )
        return cls(**values)

    @classmethod
    def preset(cls: type[C], name: str, **overrides: Any) -> C:
        """Build a named size; keywords replace its fields, except those that are None.

        Raises:
            ValueError: there is no such preset, or a value is out of range.

        Example:
            >>> GPT2Config.preset("gpt2-124m").n_layer
            12
        """
        if name not in cls.PRESETS:
            raise ValueError(
                f"{cls.__name__}: preset must be one of {', '.join(cls.PRESETS)}; got {name!r}"
            )
        given = {key: value for key, value in overrides.items() if value is not None}
        return cls.from_dict({**cls.PRESETS[name], **given})
