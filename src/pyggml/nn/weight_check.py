# SPDX-License-Identifier: MIT
"""Finding weights that change in the middle of a computation of many graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..backend.buffers import last_write
from ..backend.device import alone
from ..backend.scopes import Block

__all__ = ["SameWeights", "WeightCheck"]


class WeightCheck:
    """The numbers of a model, which must stay the same while a computation goes on.

    These are the parameters and the buffers, such as running statistics.

    Args:
        who: what computes, for messages.
        model: the module.

    Example:
        >>> weights = WeightCheck("predict", model)
        >>> with pg.alone(), weights.unchanged():
        ...     first = model(pg.tensor([[1, 2]])).numpy()
        >>> with pg.alone(), weights.unchanged():
        ...     second = model(pg.tensor([[1, 2]])).numpy()
    """

    def __init__(self, who: str, model: Any):
        self._who = who
        tensors = [*model.parameters(), *getattr(model, "buffers", list)()]
        self._memory = list({id(t.buffer): t.buffer for t in tensors}.values())
        self._version: int | None = None

    def reset(self) -> None:
        """Let the next part be the first."""
        self._version = None

    def unchanged(self) -> AbstractContextManager[None]:
        """Compute a part of the result inside the block, with the numbers of the first part.

        What the block itself writes does not count. It lies inside of `alone()`, so that no other
        thread writes meanwhile.

        Raises:
            RuntimeError: the numbers were written since the last part.
        """
        return _Unchanged(self)

    def take(self) -> None:
        """Take the numbers as they are."""
        self._version = self._now()

    def check(self) -> None:
        """Take the numbers as they are, the first time; then raise where they are others.

        Raises:
            RuntimeError: the numbers were written since the last part.
        """
        with alone():  # between two steps of a training, not in the middle of one
            now = self._now()
        if self._version is None:
            self._version = now
        if self._version != now:
            raise RuntimeError(
                f"{self._who}: the model's weights must stay the same until it is done; they were"
                " changed meanwhile, as by a training in another thread: compute between two steps"
                " (in a callback of the Trainer, or inside `with pyggml.alone():`), or use a copy"
                " of the model, copy.deepcopy(model); a Generator can go on after reset()"
            )

    def _now(self) -> int:
        return last_write(self._memory)


class _Unchanged(Block):
    """A block that computes a part.

    Args:
        check: of the weights.
    """

    def __init__(self, check: WeightCheck):
        self._check = check

    def starts(self) -> Callable[[], None]:
        """Return what compares the weights."""
        return self._check.check

    def ends(self) -> Callable[[], None]:
        """Return what takes those that the block has written."""
        return self._check.take


class SameWeights(WeightCheck):
    """The end of a module's state: pickled only where the tensors before it are of one step."""

    def __init__(self, who: str, model: Any):
        super().__init__(who, model)
        self.check()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        self.check()
        return type(None), ()
