# SPDX-License-Identifier: MIT
"""Targets of the models' own losses: classes, or tokens of a vocabulary."""

from __future__ import annotations

from ..errors import ShapeError
from ..ops.operands import need_dtype, need_tensor
from ..ops.rows import stored_source
from ..tensors import Tensor
from ..tensors.storage import read
from ..tensors.tracing import is_input

__all__ = ["check_targets"]

# That of `ops.cross_entropy`.
_IGNORED = -100


def check_targets(who: str, targets: Tensor, classes: int) -> None:
    """Raise for stored targets that are no classes: their loss would be NaN.

    Args:
        who: named in the message.
        targets: i32; what a recorded function is given each time is not looked at.
        classes: how many there are.

    Raises:
        ShapeError: a target is neither from 0 to `classes` - 1 nor -100.
        DTypeError: targets are not i32.
    """
    need_dtype(who, "targets", need_tensor(who, "targets", targets), "i32")
    node = stored_source(targets.node)
    if node.buffer is None or is_input(node):
        return
    numbers = read(node)
    counted = numbers[numbers != _IGNORED]
    if counted.size and (counted.min() < 0 or counted.max() >= classes):
        raise ShapeError(
            f"{who}: targets must be from 0 to {classes - 1}, or {_IGNORED} where none counts;"
            f" got {counted.min()} to {counted.max()}"
        )
