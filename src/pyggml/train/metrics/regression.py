# SPDX-License-Identifier: MIT
"""Metrics of predicted numbers: R², root mean square error, mean absolute error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...checks import array
from ...errors import ShapeError

__all__ = ["mae", "r2_score", "rmse"]


def _rows(who: str, predicted: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return both as (N, outputs) in double precision."""
    found, wanted = (
        array(who, name, given, kinds="iufb").astype(np.float64)
        for name, given in (("predicted", predicted), ("targets", targets))
    )
    if found.size != wanted.size or found.shape[:1] != wanted.shape[:1] or not wanted.ndim:
        raise ShapeError(
            f"{who}: predictions must have the targets' shape {wanted.shape}; got {found.shape}"
        )
    if not wanted.size:
        raise ValueError(f"{who}: at least one target must count; got none")
    return found.reshape(len(wanted), -1), wanted.reshape(len(wanted), -1)


def r2_score(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the share of the targets' variance that predictions explain, at most 1.

    Of several outputs it is the mean. An output whose targets are all equal has 1 where the
    predictions are right, and else 0. With a NaN it is NaN.

    Args:
        predicted: numbers.
        targets: numbers.

    Shape:
        predicted, targets (N,) or (N, outputs) -> float

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: there is no target.

    Source: as scikit-learn's r2_score, whose arguments come in the other order.

    Example:
        >>> r2_score([1.0, 2.0, 3.5], [1.0, 2.0, 3.0])
        0.875
    """
    found, wanted = _rows("r2_score", predicted, targets)
    left = ((found - wanted) ** 2).sum(axis=0)
    whole = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    equal = whole == 0  # not where it is NaN
    return float(np.where(equal, left == 0, 1 - left / np.where(equal, 1, whole)).mean())


def rmse(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the root of the mean squared error, in the targets' own unit.

    Args:
        predicted: numbers.
        targets: numbers.

    Shape:
        predicted, targets (N,) or (N, outputs) -> float

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: there is no target.

    Example:
        >>> rmse([1.0, 4.0], [1.0, 2.0]) ** 2
        2.0000000000000004
    """
    found, wanted = _rows("rmse", predicted, targets)
    return float(np.sqrt(((found - wanted) ** 2).mean()))


def mae(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean absolute error, in the targets' own unit.

    Args:
        predicted: numbers.
        targets: numbers.

    Shape:
        predicted, targets (N,) or (N, outputs) -> float

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: there is no target.

    Example:
        >>> mae([1.0, 4.0], [1.0, 2.0])
        1.0
    """
    found, wanted = _rows("mae", predicted, targets)
    return float(np.abs(found - wanted).mean())
