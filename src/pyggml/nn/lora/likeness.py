# SPDX-License-Identifier: MIT
"""The likeness of weights, which tells another type of a model from another model."""

from __future__ import annotations

import numpy as np

__all__ = ["LEAST_LIKENESS", "likeness"]

# Medians of four matrices with 512 Gaussian numbers each, measured: at most 0.08 of independent
# ones; 0.35 and more of one base in two ggml types, least of q1_0 and tq1_0.
LEAST_LIKENESS = 0.2


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
