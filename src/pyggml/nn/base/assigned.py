# SPDX-License-Identifier: MIT
"""Checks of what is assigned to the name of a parameter or of a registered buffer."""

from __future__ import annotations

from typing import Any

from ...errors import RecordingError
from ...tensors import Tensor
from ...tensors.tracing import is_input, outer

__all__ = ["as_buffer", "check_parameter"]


def check_parameter(module: Any, name: str, value: Any) -> None:
    """Raise unless a value may take the place of a parameter.

    Args:
        module: whose attribute it is.
        name: the attribute's.
        value: a stored tensor, a module or None may.

    Raises:
        TypeError: it is of another kind, or recorded.
    """
    if value is None or hasattr(type(value), "named_parameters"):
        return
    if not isinstance(value, Tensor) or not value.is_stored:
        raise TypeError(
            f"{type(module).__name__}: {name} is a parameter and must stay a stored tensor or be "
            f"None; got {_kind(value)}: write its numbers with module.{name}.copy_(values), or "
            f"assign another parameter, nn.Parameter(values)"
        )


def as_buffer(module: Any, name: str, value: Any) -> Any:
    """Return a value as a registered buffer keeps it: a stored tensor, or None.

    Args:
        module: whose attribute it is.
        name: the attribute's.
        value: a tensor; one that is recorded is computed now.

    Raises:
        TypeError: it is no tensor.
        RecordingError: it is computed at each run of a function that is being recorded.
    """
    if value is None:
        return None
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{type(module).__name__}: {name} is a buffer and must stay a tensor or be None; got "
            f"{_kind(value)}: write its numbers with module.{name}.copy_(values), or assign "
            "pg.tensor(values)"
        )
    who = outer()
    if who is not None and (not value.is_stored or is_input(value.node)):
        raise RecordingError(
            f"{type(module).__name__}: the buffer {name} cannot be assigned in a function that "
            f"{who} records, as that happens once and not in each run; let each run of a result y "
            f"write it: y = pg.graph.attach_update(y, pg.ops.cpy(value, self.{name}))"
        )
    return value if value.is_stored else value.detach()


def _kind(value: Any) -> str:
    """Say what a value is."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"one that is recorded, of shape {value.shape}"
