# SPDX-License-Identifier: MIT
"""The gradients that an optimizer owns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backend.weak_set import WeakGroup
from ..errors import GradientError
from ..tensors import Tensor, zeros_group
from ..tensors.gradients import (
    all_have_gradients,
    gradient_of,
    has_gradient,
    note_gradients,
    without_gradients,
)
from ..tensors.storage import clear, host_vector, whole
from .clip import GradNorm

__all__ = ["OwnGradients"]

# A gradient of one optimizer is not taken over by another.
_OWNED: WeakGroup[Tensor] = WeakGroup()


class OwnGradients:
    """A zeroed buffer that holds the gradients of several parameters, which are their `.grad`.

    Args:
        who: the optimizer, for errors.
        params: on one device.
        names: of the parameters, for errors.
        order: in which they lie in the buffer, as numbers of the parameters; None is their own.

    Attributes:
        tensors: the gradients.
        norm: computes their norm, of those that `measure` was given.
    """

    def __init__(
        self,
        who: str,
        params: Sequence[Tensor],
        names: Sequence[str],
        order: Sequence[int] | None = None,
    ) -> None:
        self._who = who
        self._params = params
        self._names = names
        self._ids = [id(param.node) for param in params]
        order = range(len(params)) if order is None else order
        made = zeros_group([(params[i].shape, "f32") for i in order], params[0].device)
        placed = dict(zip(order, made, strict=True))
        self.tensors = [placed[i] for i in range(len(params))]
        _OWNED.update(self.tensors)
        self._give_back()
        without_gradients(self._ids)
        # Of the buffer, when its gradients were taken away.
        self._version = self.tensors[0].buffer.version
        self.measure(self.tensors)

    def measure(self, trained: Sequence[Tensor]) -> None:
        """Count only some of the gradients in `norm`; of none, one that is frozen and zero."""
        trained = trained or self.tensors[:1]
        # Between the gradients in their buffer are zeros: one op reads all of them.
        every = Tensor(whole(trained[0].node)) if len(trained) == len(self.tensors) else None
        self.norm = GradNorm(trained, every)

    def _give_back(self) -> None:
        for param, own in zip(self._params, self.tensors, strict=True):
            if gradient_of(param.node) is not own:
                param.grad = own

    def zero(self, to_none: bool = True) -> None:
        """Set every gradient to zero: one call for the whole buffer.

        Args:
            to_none: `.grad` is None until something is added.
        """
        clear(self.tensors[0].node)
        self._give_back()
        (without_gradients if to_none else note_gradients)(self._ids)
        self._version = self.tensors[0].buffer.version

    def missing(self) -> list[bool] | None:
        """Return for each parameter whether its gradient is None; None where all have one."""
        if all_have_gradients(self._ids):
            return None
        found = [not has_gradient(param.node) for param in self._params]
        if all(found) and self.tensors[0].buffer.version != self._version:
            # Written to by other means than a backward.
            note_gradients(self._ids)
            return None
        return found if any(found) else None

    def take(self) -> None:
        """Set every `.grad` to the optimizer's tensor, and those of frozen parameters to zero."""
        self._give_back()
        note_gradients(self._ids)
        for param, own in zip(self._params, self.tensors, strict=True):
            if not param.requires_grad:
                own.zero_()

    def sum(self, reduce: Callable[[list[np.ndarray]], None]) -> None:
        """Let a function sum the gradients over the ranks: all of them as one vector.

        Args:
            reduce: replaces arrays by their sums.
        """
        note_gradients(self._ids)  # another rank may have one
        with host_vector(whole(self.tensors[0].node)) as numbers:
            reduce([numbers])

    def adopt(self, method: str) -> None:
        """Copy gradients that were assigned to `.grad` into the optimizer's tensors.

        Args:
            method: the optimizer's, for errors.

        Raises:
            GradientError: one belongs to another optimizer.
        """
        for i, (param, own) in enumerate(zip(self._params, self.tensors, strict=True)):
            given = gradient_of(param.node)
            if given is own:
                continue
            if given is None:
                own.zero_()
                param.grad = own
                without_gradients([id(param.node)])
                self._version = own.buffer.version
                continue
            if given in _OWNED:
                raise GradientError(
                    f"{self._who}.{method}: the gradient of {self._names[i]} is added into another"
                    " optimizer's, made later; call this one's zero_grad() before the backward"
                )
            else:
                own.copy_(given)
            param.grad = own
