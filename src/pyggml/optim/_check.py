# SPDX-License-Identifier: MIT
"""Checks that optimizers, schedules and groups share: a number that is none is named at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = [
    "check_betas",
    "check_choice",
    "check_finite",
    "check_flag",
    "check_mapping",
    "check_model",
    "check_number",
    "check_positive",
    "check_several",
    "check_whole",
    "is_real",
    "items_of",
    "shown",
    "to_float",
]

# The updates' hyper-parameters are f32: 0 times what is infinite there would be NaN.
_F32_MAX = float(np.finfo(np.float32).max)
# Counts are kept and saved as int64.
_COUNT_MAX = 2**63 - 1
# Python refuses to write integers of many digits.
_SHOWN_BITS = 128


def is_real(value: Any) -> bool:
    """Whether it is a plain real number, Python's or NumPy's."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_number(where: str, name: str, value: Any, below: float = math.inf) -> float:
    """Return `value`, a number of at least zero and below `below`, finite in f32, too."""
    if not is_real(value) or not (0 <= value < below and value <= _F32_MAX):
        bound = "" if below == math.inf else f" and < {below}"
        raise ValueError(f"{where}: {name} must be finite and >= 0{bound}; got {shown(value)}")
    return float(value)


def check_positive(where: str, name: str, value: Any, why: str = "") -> float:
    """Return `value`, a number above zero that is finite in f32, too."""
    if not is_real(value) or not 0 < value <= _F32_MAX:
        raise ValueError(f"{where}: {name} must be > 0 and finite{why}; got {shown(value)}")
    return float(value)


def check_finite(where: str, name: str, value: Any) -> float:
    """Return `value`, any number that f32 holds."""
    if not is_real(value) or not -_F32_MAX <= value <= _F32_MAX:
        raise ValueError(f"{where}: {name} must be a finite number; got {shown(value)}")
    return float(value)


def check_several(where: str, name: str, parts: str, value: Any) -> tuple[Any, ...]:
    """Return `value`, a sequence of as many items as `parts`, "a, b", has names."""
    wanted, items = len(parts.split(",")), items_of(value)
    if items is None or len(items) != wanted:
        raise ValueError(f"{where}: {name} must be {wanted} numbers, ({parts}); got {shown(value)}")
    return tuple(items)


def check_betas(where: str, betas: Any) -> tuple[float, float]:
    """Return `betas`, the decay of two averages, each in [0, 1)."""
    first, second = check_several(where, "betas", "beta1, beta2", betas)
    return (
        check_number(where, "betas[0]", first, below=1.0),
        check_number(where, "betas[1]", second, below=1.0),
    )


def check_whole(
    where: str, name: str, value: Any, least: int = 0, most: int = _COUNT_MAX, cure: str = ""
) -> int:
    """Return `value`, an integer, Python's or NumPy's, within bounds."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        bound = f">= {least}" if most == _COUNT_MAX else f"from {least} to {most}"
        raise ValueError(
            f"{where}: {name} must be an integer {bound}; got {shown(value)}"
            + (f"; {cure}" if cure else "")
        )
    return int(value)


def check_flag(where: str, name: str, value: Any) -> bool:
    """Return `value`, True or False: what is merely true, such as "no", is a mistake."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{where}: {name} must be True or False; got {shown(value)}")
    return bool(value)


def check_choice(where: str, name: str, value: Any, choices: Iterable[str]) -> str:
    """Return `value`, one of several words."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(
            f"{where}: {name} must be {', '.join(known[:-1])} or {known[-1]}; got {shown(value)}"
        )
    return value


def check_model(where: str, model: Any) -> Any:
    """Return `model`, which must be a module: something with named parameters."""
    if not callable(getattr(model, "named_parameters", None)):
        raise TypeError(
            f"{where}: model must be a module, as nn.Module is; got {type(model).__name__}"
        )
    return model


def check_mapping(where: str, state: Any) -> Mapping[str, Any]:
    """Return `state`, which must be a dict such as `state_dict` gives."""
    if not isinstance(state, Mapping):
        raise TypeError(
            f"{where}: state must be a dict, as state_dict() gives; got {type(state).__name__}"
        )
    return state


def items_of(value: Any) -> list[Any] | None:
    """The items of a list, tuple, iterator or array; None of what is no such thing."""
    no_list = isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)
    # Arrays and tensors without an axis have no items, either.
    return None if no_list or getattr(value, "ndim", 1) == 0 else list(value)


def to_float(value: Any) -> float:
    """The number as a float; integers beyond all floats are infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def shown(value: Any) -> str:
    """How a value is written in an error: numbers as they are, the rest so that one sees why."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    if value is None or is_real(value) or isinstance(value, bool):
        return str(value)
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return (
        text if isinstance(value, (str, tuple, list)) else f"{text}, of type {type(value).__name__}"
    )
