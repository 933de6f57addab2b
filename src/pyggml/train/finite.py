# SPDX-License-Identifier: MIT
"""Where numbers that are not finite came from: the batch, the weights, or the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..data import IGNORE_INDEX
from .batches import Batch, extra_inputs

__all__ = ["NonFiniteError", "find_class", "find_gradient", "find_input", "find_weight"]


class NonFiniteError(ArithmeticError):
    """A loss or gradient was infinite or not a number.

    Attributes:
        spoiled: parameters were changed all the same, as `fused_update` may; else none was.
        source: "inputs" where the batch brought it, "weights" where a parameter did before the
            step, "gradients" where they alone are not finite, and "" where none of these is known.
    """

    def __init__(self, message: str, spoiled: bool = False, source: str = ""):
        super().__init__(message)
        self.spoiled = spoiled
        self.source = source


def _first(name: str, array: np.ndarray, bad: np.ndarray) -> str:
    """The first bad element of an array, and how many there are."""
    index = ", ".join(map(str, np.argwhere(bad)[0])) if array.ndim else ""
    value = array[bad].flat[0]
    many = f" ({np.count_nonzero(bad)} of {array.size} such)" if array.size > 1 else ""
    return f"{name}[{index}] is {value}{many}" if array.ndim else f"{name} is {value}"


def find_input(batches: Sequence[Batch]) -> str:
    """The first number of some batches that is NaN or infinite, in words; "" where all are finite.

    Args:
        batches: of a step.

    Example:
        >>> find_input([(np.array([[1.0, np.nan]]), np.array([0]))])
        'x[0, 1] is nan (1 of 2 such)'
    """
    for number, batch in enumerate(batches, 1):
        arrays = {"x": batch[0], "y": batch[1], **extra_inputs(batch)}
        for name, array in arrays.items():
            bad = ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(0, bool)
            if bad.any():
                where = f" in batch {number} of {len(batches)}" if len(batches) > 1 else ""
                return _first(name, array, bad) + where
    return ""


def find_class(batches: Sequence[Batch], classes: int) -> str:
    """The first target that is no class of a classifier, in words; "" where all are.

    Args:
        batches: of a step, whose targets are whole numbers.
        classes: how many there are.

    Example:
        >>> find_class([(np.zeros((2, 1)), np.array([0, 3]))], 3)
        'y[1] is 3 (1 of 2 such), and the classes are 0 to 2'
    """
    for batch in batches:
        y = batch[1]
        bad = (y != IGNORE_INDEX) & ((y < 0) | (y >= classes))
        if bad.any():
            return f"{_first('y', y, bad)}, and the classes are 0 to {classes - 1}"
    return ""


def find_weight(parameters: Iterable[tuple[str, Any]]) -> str:
    """The first parameter that holds what is not finite, in words; "" where none does.

    Args:
        parameters: by name.
    """
    for name, parameter in parameters:
        array = parameter.numpy()
        bad = ~np.isfinite(array)
        if bad.any():
            return f"the parameter {_first(name, array, bad)}"
    return ""


def find_gradient(parameters: Iterable[tuple[str, Any]], grads: Mapping[Any, Any]) -> str:
    """The first gradient that is not finite, in words; "" where all are.

    Args:
        parameters: by name.
        grads: of those that are trained.
    """
    for name, parameter in parameters:
        if parameter in grads:
            array = grads[parameter].numpy()
            bad = ~np.isfinite(array)
            if bad.any():
                return f"the gradient of {_first(name, array, bad)}"
    return ""
