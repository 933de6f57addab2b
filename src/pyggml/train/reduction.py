# SPDX-License-Identifier: MIT
"""Whether a loss is summed over a batch, as steps need it, or is a mean already."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..data import IGNORE_INDEX
from ..data import Batch as NamedBatch
from .batches import arrays_of, extra_inputs, spec_of
from .graphs import StepGraphs

__all__ = ["check_summed"]

# A sum doubles, a mean stays; rounding, of bf16 too, is far from either.
_TOLERANCE = 1e-3


def check_summed(graphs: StepGraphs, batch: Any) -> None:
    """Refuse a loss that is a mean, which a step would divide a second time.

    A row is evaluated alone, and twice in one batch: a sum is then twice as large, a mean is the
    same. Losses that compare rows with one another, or take no such batches, are believed.

    Args:
        graphs: have the loss and the model.
        batch: like those that are to come.

    Raises:
        ValueError: the loss is a mean.
    """
    y = batch[1]
    counted = np.zeros(len(y)) if y.dtype.kind == "f" else (y != IGNORE_INDEX)
    row = int(counted.reshape(len(y), -1).sum(axis=1).argmax())
    try:
        once, twice = (_loss(graphs, _repeat(batch, row, times)) for times in (1, 2))
    except (ValueError, TypeError, LookupError, RuntimeError, ArithmeticError):
        return  # what is wrong shows when the batch itself is computed
    if math.isfinite(once) and once != 0 and abs(twice - once) <= _TOLERANCE * abs(once):
        raise ValueError(
            "TrainStep: loss must be the sum over the targets of a batch, or a loss for each; got "
            f"a mean: {once:.6g} for one row, and {twice:.6g} for the same row twice. The step "
            'divides by the number of targets itself: give reduction="sum" or "none", or multiply '
            "by that number"
        )


def _repeat(batch: Any, row: int, times: int) -> NamedBatch:
    """A batch of one row, several times."""
    rows = len(batch[0])

    def taken(array: np.ndarray) -> np.ndarray:
        return array[[row] * times] if array.ndim and len(array) == rows else array

    more = {name: taken(array) for name, array in extra_inputs(batch).items()}
    return NamedBatch(taken(batch[0]), taken(batch[1]), **more)


def _loss(graphs: StepGraphs, batch: NamedBatch) -> float:
    return float(graphs.evaluation(spec_of(batch)).run(arrays_of(batch)))
