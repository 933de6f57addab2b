# SPDX-License-Identifier: MIT
"""Numbers that are not finite, found in the batch, the weights or the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data import IGNORE_INDEX
from ..optim.clip import NORM_MAX
from .batches import Batch, extra_inputs

__all__ = [
    "NonFiniteError",
    "find_bad_gradient",
    "find_class",
    "find_input",
    "find_source",
]


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
    """Describe the first number of some batches that is NaN or infinite; "" where all are finite.

    Args:
        batches: batches of a step.

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


def find_source(
    message: str, batches: Sequence[Batch], model: Any, classes: int | None, spoiled: bool
) -> NonFiniteError:
    """Return the error of a step, with the first bad number of its batches or of the weights.

    Args:
        message: beginning of the message.
        batches: batches of the step.
        model: the model.
        classes: number of classes of the targets, where they are class numbers.
        spoiled: True where the weights were changed since.
    """
    found, source = find_input(batches), "inputs"
    if not found and classes is not None:
        found = find_class(batches, classes)
    if not found and not spoiled:
        found, source = _find_weight(model), "weights"
    if not found:
        return NonFiniteError(message, spoiled)
    return NonFiniteError(f"{message}; {found}", spoiled, source)


def find_bad_gradient(error: NonFiniteError, model: Any, optimizer: Any, at: str) -> NonFiniteError:
    """Return the error of gradients whose loss is finite, with the first bad one.

    Args:
        error: of `find_source`, returned where it has a source.
        model: the model.
        optimizer: has the gradients.
        at: the loss scale in words, or "".
    """
    norm = optimizer.grad_norm()  # of all ranks, of which one may find the bad one
    for name, parameter in model.named_parameters():
        if parameter in optimizer.grads and optimizer.grads[parameter].is_stored:
            array = optimizer.grads[parameter].numpy()
            bad = ~np.isfinite(array)
            if bad.any():
                found = f"the gradient of {_first(name, array, bad)}"
                return (
                    error
                    if error.source
                    else NonFiniteError(f"{error}; {found}", False, "gradients")
                )
    return NonFiniteError(
        f"the gradients' norm must be at most {NORM_MAX:.2g}, whose square f32 holds, or "
        f"be clipped; got {norm:g}{at}",
        source="gradients",
    )


def find_class(batches: Sequence[Batch], classes: int) -> str:
    """Describe the first target that is not a class of a classifier; "" if all are.

    Args:
        batches: batches of a step, whose targets are whole numbers.
        classes: number of classes.

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


def _find_weight(model: Any) -> str:
    """Describe the first parameter that holds a number that is not finite."""
    for name, parameter in model.named_parameters():
        array = parameter.numpy()
        bad = ~np.isfinite(array)
        if bad.any():
            return f"the parameter {_first(name, array, bad)}"
    return ""
