# SPDX-License-Identifier: MIT
"""The base of the losses that are modules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...tensors import Tensor
from ..module import Module

__all__ = ["Loss"]

_PACKAGE = __name__.rpartition(".")[0]
_OPERANDS = ("input", "target", "targets", "logits", "x")


class Loss(Module):
    """A loss whose constructor takes options, and raises for tensors that are to be compared."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(_PACKAGE) and "__init__" in vars(cls):
            cls.__init__ = _of_options(cls.__init__)  # type: ignore[method-assign]


def _of_options(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that raises where it is called as the loss itself is."""
    options = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def call(self: Any, *args: Any, **given: Any) -> None:
        tensors = [isinstance(each, (Tensor, np.ndarray)) for each in args[:2]]
        compared = any(tensors if options[0] != "weight" else tensors[1:])
        if compared or any(name in _OPERANDS and name not in options for name in given):
            own = type(self)
            takes = list(inspect.signature(own.forward).parameters.values())[1:]
            names = ", ".join(each.name for each in takes if each.default is each.empty)
            raise TypeError(
                f"{own.__name__}: the constructor takes options, not the tensors to compare: make "
                f"the loss first, {own.__name__}()({names})"
            )
        init(self, *args, **given)

    return call
