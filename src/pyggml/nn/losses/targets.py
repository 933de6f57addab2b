# SPDX-License-Identifier: MIT
"""The numbers of targets: class numbers and probabilities, checked where they are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import ops
from ...tensors import Tensor
from ...tensors.node import Node
from ...tensors.row_limits import (
    check_later,
    has_passed,
    note_passed,
    row_limit,
    stored_root,
)
from ...tensors.storage import look
from ...tensors.tracing import is_input

__all__ = [
    "are_classes",
    "are_probabilities",
    "classes_or_nan",
    "have_classes",
    "probabilities_or_nan",
]


@dataclass(frozen=True)
class _Classes:
    """Class numbers from 0, or one that does not count."""

    who: str
    name: str
    count: int
    ignore_index: int | None

    def wrong(self, numbers: np.ndarray) -> np.ndarray | None:
        """Return where the numbers are no classes; None where all are."""
        if not numbers.size or (numbers.min() >= 0 and numbers.max() < self.count):
            return None
        wrong = (numbers < 0) | (numbers >= self.count)
        if self.ignore_index is not None:
            wrong &= numbers != self.ignore_index
        return wrong if wrong.any() else None

    def error(self, numbers: np.ndarray, wrong: np.ndarray) -> ValueError:
        """Return the error of the first wrong number."""
        at = tuple(map(int, np.argwhere(wrong)[0])) if numbers.ndim else ()
        ignored = f", or ignore_index={self.ignore_index}" if self.ignore_index is not None else ""
        return ValueError(
            f"{self.who}: {self.name} must hold class numbers from 0 to {self.count - 1}{ignored};"
            f" got {int(numbers[at])} at {at}: number the classes from 0, as"
            f" np.unique(labels, return_inverse=True)[1] does, or give the model an output for each"
        )


@dataclass(frozen=True)
class _Probabilities:
    """Numbers in [0, 1]; a NaN stays one."""

    who: str
    name: str

    def wrong(self, numbers: np.ndarray) -> np.ndarray | None:
        """Return where the numbers are no probabilities; None where all are."""
        if numbers.min() >= 0 and numbers.max() <= 1:
            return None
        wrong = (numbers < 0) | (numbers > 1)
        return wrong if wrong.any() else None

    def error(self, numbers: np.ndarray, wrong: np.ndarray) -> ValueError:
        """Return the error of the first wrong number."""
        at = tuple(map(int, np.argwhere(wrong)[0])) if numbers.ndim else ()
        return ValueError(
            f"{self.who}: {self.name} must be from 0 to 1; got {float(numbers[at]):g} at {at}: "
            "apply sigmoid to logits, or take binary_cross_entropy_with_logits, and give two"
            " classes as 0 and 1"
        )


_Check = _Classes | _Probabilities


def have_classes(x: Any, targets: Any, ignore_index: Any) -> bool:
    """Return True for arguments whose class numbers can be looked at; others raise later."""
    tensors = isinstance(x, Tensor) and isinstance(targets, Tensor)
    return (
        tensors
        and x.shape[:-1] == targets.shape != x.shape
        and targets.dtype.name == "i32"
        and isinstance(ignore_index, (int, np.integer))
        and not isinstance(ignore_index, bool)
    )


def are_classes(
    who: str, name: str, targets: Tensor, count: int, ignore_index: int | None = None
) -> bool:
    """Raise on class numbers out of range, and return True where all are known to be in it.

    Stored numbers are looked at once after each write. Those of a traced function's input are
    looked at when they are written, before each run. Of what a graph computes nothing is known.

    Args:
        who: the function that the user called.
        name: of the argument.
        targets: i32.
        count: of classes.
        ignore_index: the number of those that do not count; None where there is none.

    Raises:
        ValueError: a number is neither a class nor `ignore_index`.
    """
    limit = row_limit(targets.node)
    if limit is not None and limit <= count:
        return True
    root = stored_root(targets.node)
    # Most batches have nothing else; as numbers without a sign the negative ones are large.
    if root is not None and not is_input(root) and look(root).view(np.uint32).max() < count:
        return True
    return _is_known(targets, root, _Classes(who, name, count, ignore_index))


def are_probabilities(who: str, name: str, x: Tensor) -> bool:
    """Raise on numbers outside of [0, 1], and return True where all are known to be in it.

    Args:
        who: the function that the user called.
        name: of the argument.
        x: f32.

    Raises:
        ValueError: a number is below 0 or above 1.
    """
    return _is_known(x, stored_root(x.node), _Probabilities(who, name))


def _is_known(t: Tensor, root: Node | None, check: _Check) -> bool:
    """Check the numbers of a tensor now, or when they are written; return False if neither can."""
    if root is None:
        return False
    if is_input(root):
        whole = math.prod(root.shape) == t.numel()
        if whole:
            check_later(root, check)
        return whole
    if has_passed(root, check):
        return True
    numbers = look(root)
    wrong = check.wrong(numbers)
    if wrong is None:
        note_passed(root, check)
        return True
    if root is not t.node:  # a part, perhaps without what is wrong
        numbers = t.numpy()
        wrong = check.wrong(numbers)
    if wrong is not None:
        raise check.error(numbers, wrong)
    return True


def classes_or_nan(targets: Tensor, count: int, ignore_index: int | None = None) -> Tensor:
    """1 at a class number and at `ignore_index`, else NaN; of numbers that a graph computes."""
    numbers = ops.cast(targets, "f32")
    above = ops.step(ops.scale(numbers, 1.0, 0.5))
    fine = ops.mul(above, ops.step(ops.scale(numbers, -1.0, count - 0.5)))
    if ignore_index is not None:
        distance = ops.abs(ops.scale(numbers, 1.0, -float(ignore_index)))
        fine = ops.add(fine, ops.step(ops.scale(distance, -1.0, 0.5)))
    return _or_nan(fine)


def probabilities_or_nan(x: Tensor) -> Tensor:
    """1 at a number in [0, 1], else NaN."""
    outside = ops.add(ops.step(ops.neg(x)), ops.step(ops.scale(x, 1.0, -1.0)))
    return _or_nan(ops.scale(outside, -1.0, 1.0))


def _or_nan(fine: Tensor) -> Tensor:
    return ops.div(fine, fine)
