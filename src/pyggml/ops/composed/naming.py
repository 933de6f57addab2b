# SPDX-License-Identifier: MIT
"""Errors of functions that call other ops: they name the one that the user called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ...errors import reason

__all__ = ["composed"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def composed(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the errors of the ops that a function calls begin with its own name."""

    @functools.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return fn(*args, **kwargs)
        except (TypeError, ValueError, IndexError) as error:
            if not str(error).startswith(f"{fn.__name__}: "):
                error.args = (f"{fn.__name__}: {reason(error)}",)
            raise

    return call
