# SPDX-License-Identifier: MIT
"""ModelConfig: fields, presets and checks of the models' configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

__all__ = ["ModelConfig", "check_labels"]

C = TypeVar("C", bound="ModelConfig")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model; the base of every configuration.

    Attributes:
        PRESETS: named sizes.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def check_kinds(self) -> None:
        """Convert NumPy's numbers to Python's; raise on other kinds of values.

        Raises:
            ValueError: a field has a value of another kind.
        """
        who = type(self).__name__
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.generic):
                value = value.item()
                object.__setattr__(self, field.name, value)
            # Annotations are texts here, as in every module that has them postponed.
            if field.type == "bool" and not isinstance(value, bool):
                raise ValueError(f"{who}: {field.name} must be True or False; got {value!r}")
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if field.type == "float" and not number:
                raise ValueError(f"{who}: {field.name} must be a number; got {value!r}")
            if field.type == "str" and not isinstance(value, str):
                raise ValueError(f"{who}: {field.name} must be a text; got {value!r}")

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
        if not isinstance(name, str) or name not in cls.PRESETS:
            raise ValueError(
                f"{cls.__name__}: preset must be one of {', '.join(cls.PRESETS)}; got {name!r}"
            )
        given = {key: value for key, value in overrides.items() if value is not None}
        return cls.from_dict({**cls.PRESETS[name], **given})


def check_labels(who: str, labels: Any, classes: int) -> tuple[str, ...] | None:
    """Return the names of classes as a tuple; None has none.

    Raises:
        ValueError: they are not as many as classes, not texts in a list or tuple, or not all
            different.
    """
    if labels is None:
        return None
    names = tuple(labels) if isinstance(labels, (list, tuple)) else ()
    if len(names) != classes or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{who}: labels must be {classes} names, as many as classes; got {labels!r}"
        )
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{who}: labels must differ; got {', '.join(twice)} more than once")
    return names
