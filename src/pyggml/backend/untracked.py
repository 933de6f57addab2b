# SPDX-License-Identifier: MIT
"""Memory of C that the cyclic collector does not see."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["untracked"]


def untracked(thing: Any) -> np.ndarray:
    """Return a box that keeps a thing alive until the last reference to the box is dropped.

    The collector ends a cycle in two phases: it calls every finaliser, then it drops what the
    objects hold. What `ffi.gc` returns frees its memory in the first phase, and a `__del__` or the
    `finally` of a generator that comes later would use freed memory. The collector does not look
    into an array of NumPy: what is inside ends in the second phase, in which no Python code of the
    cycle runs. The thing must not lead back to its box: the two would never end.

    Args:
        thing: what `ffi.gc` returned, or a tuple with it; `box.item()` returns it.

    Example:
        >>> untracked("memory").item()
        'memory'
    """
    box = np.empty(1, object)
    box[0] = thing
    return box
