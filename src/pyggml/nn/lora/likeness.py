# SPDX-License-Identifier: MIT
"""The likeness of weights, which tells another type of a model from another model."""

from __future__ import annotations

import numpy as np

__all__ = ["LEAST_LIKENESS", "likeness"]

# Independent weights have 0, by 0.1 more or less where 128 are compared; those of one model have
# 0.8 and more in every ggml type.
LEAST_LIKENESS = 0.5


def likeness(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return the correlation of two weights' numbers; None where all numbers of one are the same.

    Args:
        a, b: finite, of the same size.

    Example:
        >>> round(likeness(np.arange(4.0), 2 * np.arange(4.0) + 1), 6)
        1.0
    """
    x, y = (each.reshape(-1) - each.mean(dtype=np.float64) for each in (a, b))
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size > 0 else None
