# SPDX-License-Identifier: MIT
"""The exceptions of pyggml; each is also a built-in one, such as ValueError."""

from __future__ import annotations

from typing import Any

__all__ = [
    "AnomalyError",
    "BackendError",
    "ConfigError",
    "ConfigTypeError",
    "DTypeError",
    "FormatError",
    "GradientError",
    "RecordingError",
    "ShapeError",
    "shown",
]

_LONGEST = 80


def shown(x: Any) -> str:
    """Return a value's repr for a message: one line, shortened where it is long."""
    try:
        text = " ".join(repr(x).split())
    except ValueError:  # Python writes no whole numbers of thousands of digits
        return (
            f"a whole number of {x.bit_length()} bits" if isinstance(x, int) else type(x).__name__
        )
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


class ShapeError(ValueError):
    """A shape does not fit the operation.

    Example:
        >>> raise ShapeError("add: shapes must broadcast; got (2, 3) and (4,)")
        Traceback (most recent call last):
            ...
        pyggml.errors.ShapeError: add: shapes must broadcast; got (2, 3) and (4,)
    """


class DTypeError(TypeError):
    """A number type does not fit the operation.

    Example:
        >>> issubclass(DTypeError, TypeError)
        True
    """


class BackendError(RuntimeError):
    """A device is missing, lacks an operation or memory, or failed while computing.

    Example:
        >>> issubclass(BackendError, RuntimeError)
        True
    """


class FormatError(ValueError):
    """A file is not what it should be; the message names file, field and cause.

    Example:
        >>> issubclass(FormatError, ValueError)
        True
    """


class ConfigError(ValueError):
    """An option, or several together, cannot be used.

    Example:
        >>> issubclass(ConfigTypeError, ConfigError) and issubclass(ConfigTypeError, TypeError)
        True
    """


class ConfigTypeError(ConfigError, TypeError):
    """An option has a value of a wrong kind."""


class GradientError(RuntimeError):
    """No gradient can be computed: an op has none, or no tensor requires one.

    Example:
        >>> issubclass(GradientError, RuntimeError)
        True
    """


class AnomalyError(ArithmeticError):
    """An op made a NaN or an infinity while `detect_anomaly` was on.

    Example:
        >>> issubclass(AnomalyError, ArithmeticError)
        True
    """


class RecordingError(RuntimeError):
    """A traced function does something that its later runs would not repeat.

    Example:
        >>> issubclass(RecordingError, RuntimeError)
        True
    """
