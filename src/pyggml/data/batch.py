# SPDX-License-Identifier: MIT
"""A batch: inputs, targets, and further inputs of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from .dataset import IGNORE_INDEX

__all__ = ["Batch"]


class Batch(tuple[np.ndarray, np.ndarray]):
    """Inputs and targets that unpack as a pair, with further inputs by name.

    Args:
        x: inputs.
        y: targets.
        inputs: what `model.loss(x, y, ...)` takes besides, by the names of its parameters:
            `positions` and `segments` of a packed batch, for instance. They are copied into the
            tensors of the recorded step as x and y are.

    Attributes:
        x: inputs.
        y: targets.
        inputs: the others.
        rows: rows that count; those after them fill the batch up, as `pad_last` of a loader does.

    Example:
        >>> batch = Batch(np.ones((1, 3)), np.ones((1, 3)), positions=np.array([[0, 1, 0]]))
        >>> x, y = batch
        >>> sorted(batch.inputs)
        ['positions']
    """

    inputs: dict[str, np.ndarray]
    rows: int

    def __new__(cls, x: np.ndarray, y: np.ndarray, **inputs: np.ndarray) -> Batch:
        """Make a pair with further inputs."""
        batch = super().__new__(cls, (x, y))
        batch.inputs = inputs
        batch.rows = len(x) if np.ndim(x) else 0
        return batch

    @property
    def x(self) -> np.ndarray:
        """Inputs."""
        return self[0]

    @property
    def y(self) -> np.ndarray:
        """Targets."""
        return self[1]

    @property
    def tokens(self) -> int:
        """Number of targets that the loss counts; with decimal targets, the number of rows."""
        if self.y.dtype.kind == "f":
            return self.rows
        return int(np.count_nonzero(self.y != IGNORE_INDEX))

    def __reduce__(self) -> Any:
        return _make, (self.x, self.y, self.inputs, self.rows)

    def __repr__(self) -> str:
        names = {"x": self.x, "y": self.y, **self.inputs}
        return f"Batch({', '.join(f'{name} {array.shape}' for name, array in names.items())})"


def _make(x: np.ndarray, y: np.ndarray, inputs: dict[str, np.ndarray], rows: int) -> Batch:
    batch = Batch(x, y, **inputs)
    batch.rows = rows
    return batch


def as_batch(pair: Any) -> Batch:
    """Return a batch of any pair (x, y)."""
    return pair if isinstance(pair, Batch) else Batch(*pair)


def pad_rows(batch: Batch, count: int) -> Batch:
    """Pad a batch to `count` rows with inputs of 0 and ignored targets; `rows` stays as it was.

    Decimal targets have no ignored value: they are padded with 0, and `rows` tells how many
    count.
    """
    missing = count - len(batch.x)
    if missing <= 0:
        return batch

    def pad(array: np.ndarray, value: int = 0) -> np.ndarray:
        more = np.full((missing, *array.shape[1:]), value, array.dtype)
        return np.concatenate([array, more])

    ignored = 0 if batch.y.dtype.kind == "f" else IGNORE_INDEX
    inputs = {name: pad(array) for name, array in batch.inputs.items()}
    return _make(pad(batch.x), pad(batch.y, ignored), inputs, batch.rows)
