# SPDX-License-Identifier: MIT
"""ModelConfig: fields, presets and checks of the models' configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from .. import checks
from ..io.names import check_unicode

__all__ = ["ModelConfig", "check_labels", "label_names"]

C = TypeVar("C", bound="ModelConfig")

_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "bool": checks.flag,
    "float": checks.number,
    "int": checks.whole,
    "str": checks.text,
}


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
            TypeError: a field has a value of another kind.
            ValueError: a number is not finite.
        """
        who = type(self).__name__
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.generic):
                value = value.item()
                object.__setattr__(self, field.name, value)
            # Annotations are texts here, as in every module that has them postponed.
            kind, _, other = str(field.type).partition(" | ")
            if kind in _CHECKS and (not other or (other == "None" and value is not None)):
                object.__setattr__(self, field.name, _CHECKS[kind](who, field.name, value))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Build from a dict such as `to_dict` gives.

        Raises:
            ValueError: a key is unknown, or a value is out of range.
        """
        checks.mapping(cls.__name__, "values", values)
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
        checks.choice(cls.__name__, "preset", name, cls.PRESETS)
        given = {key: value for key, value in overrides.items() if value is not None}
        return cls.from_dict({**cls.PRESETS[name], **given})


def check_labels(who: str, labels: Any, classes: int) -> tuple[str, ...] | None:
    """Return the names of classes as a tuple; None has none.

    Raises:
        TypeError: they are no list of str.
        ValueError: they are not as many as classes, not all different, or not Unicode.
    """
    if labels is None:
        return None
    names = checks.names(who, "labels", labels)
    if len(names) != classes:
        raise ValueError(
            f"{who}: labels must be {classes} names, as many as classes; got {labels!r}"
        )
    for name in names:
        check_unicode(who, "labels", name, "rename the class, whose name model files hold")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{who}: labels must differ; got {', '.join(twice)} more than once")
    return names


def label_names(config: Any) -> list[str]:
    """Return the names of a configuration's classes: numbered ones where it has none."""
    return list(config.labels or (f"LABEL_{i}" for i in range(config.classes)))
