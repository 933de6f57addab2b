# SPDX-License-Identifier: MIT
"""The memory that a graph may take to be faster, and the scope in which it may take none."""

from __future__ import annotations

from ..backend.device import Device
from ..backend.scopes import Scope, Scopes

__all__ = ["bytes_for_speed", "is_sparing", "spare_memory"]

# Of all memory of a GPU, used or not: the rounding of some sums depends on it, and must be that of
# the run before.
_CUDA_SHARE = 1 / 16

_sparing = Scopes()


def spare_memory() -> Scope:
    """Return a scope in which computations are recorded that take as little memory as they can.

    Example:
        >>> with spare_memory():
        ...     y = pg.recompute(pg.ops.gelu(pg.ones(2)))
    """
    return Scope(_sparing, True)


def is_sparing() -> bool:
    """Return True within `spare_memory`."""
    return bool(_sparing.innermost(False))


def bytes_for_speed(where: Device) -> int:
    """Return how many bytes a computation may take in a device's memory to be faster.

    Args:
        where: the device.

    Returns:
        A sixteenth of a CUDA device's memory; 0 elsewhere, and within `spare_memory`.
    """
    if is_sparing() or where.name.partition(":")[0] != "cuda":
        return 0
    return int(where.memory_total * _CUDA_SHARE)
