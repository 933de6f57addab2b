# SPDX-License-Identifier: MIT
"""The part of a model's weights that a training changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..backend.device import alone
from ..nn.base import check_names
from ..tensors import Tensor

__all__ = ["TrainedWeights"]


class TrainedWeights:
    """The trained parameters and the buffers of a model; its frozen parameters are left out.

    Args:
        model: the model.
    """

    def __init__(self, model: Any):
        self._model = model

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors by name: parameters, then buffers."""
        yield from self._tensors().items()

    def _tensors(self) -> dict[str, Tensor]:
        trained = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        return trained | dict(self._model.named_buffers())

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the tensors into arrays by name."""
        with alone():  # between two steps of a training
            return {name: value.numpy() for name, value in self._tensors().items()}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Overwrite the tensors; on an error nothing changes.

        Args:
            state: what `state_dict` gave.

        Raises:
            KeyError: names are missing or unexpected.
            ShapeError: an array has another shape than its tensor.
        """
        check_names("TrainedWeights.load_state_dict", self._tensors(), state)
        self._model.load_state_dict(state, strict=False)
