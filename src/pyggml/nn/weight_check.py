# SPDX-License-Identifier: MIT
"""Finding weights that change in the middle of a computation of many graphs."""

from __future__ import annotations

from typing import Any

__all__ = ["WeightCheck"]


class WeightCheck:
    """The weights of a model, which must stay the same while a computation goes on.

    Args:
        who: what computes, for messages.
        model: the module.
    """

    def __init__(self, who: str, model: Any):
        self._who = who
        self._buffers = list({id(p.buffer): p.buffer for p in model.parameters()}.values())
        self.begin()

    def begin(self) -> None:
        """Take the weights as they are."""
        self._version = self._now()

    def _now(self) -> int:
        return sum(buffer.version for buffer in self._buffers)

    def check(self) -> None:
        """Raise where a weight was written since the beginning.

        Raises:
            RuntimeError: one was.
        """
        if self._now() != self._version:
            raise RuntimeError(
                f"{self._who}: the model's weights must stay the same until it is done; they were"
                " changed meanwhile, as by a training in another thread: compute between two steps"
                " (in a callback of the Trainer, or inside `with pyggml.alone():`), or use a copy"
                " of the model; a Generator can go on after reset()"
            )
