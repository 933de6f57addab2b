# SPDX-License-Identifier: MIT
"""Local steps: ranks train by themselves and average what they have learnt now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..tensors import Tensor
from .group import Group

__all__ = ["LocalSteps"]


class LocalSteps:
    """Average the ranks' weights by a step of SGD with Nesterov momentum, as DiLoCo does.

    d = mean over the ranks of (a - w);  m = momentum * m + d;  a = a - lr * (d + momentum * m)

    a is the anchor: the weights that all ranks had after the last `sync`; w are those of a rank.

    Args:
        group: the ranks.
        params: the trained parameters by name.
        lr: of the outer step.
        momentum: of the outer step.

    Attributes:
        steps: of this rank since the last `sync` or `begin`.
        tokens: of these steps.
        apart: states of the ranks from 1 on, by the text of their numbers, as a checkpoint has
            them; on rank 0, and until the next `sync`.

    Source: Douillard et al. 2023, arXiv:2311.08105; with lr 1 and momentum 0 it is local SGD,
        Stich 2018, arXiv:1805.09767.

    Example:
        >>> w = Parameter([1.0])
        >>> local = LocalSteps(Group(), {"w": w}, lr=1.0, momentum=0.0)
        >>> _ = w.copy_([0.5])
        >>> local.sync(3.0), w.tolist()
        ([3.0], [0.5])
    """

    def __init__(
        self, group: Group, params: Mapping[str, Tensor], lr: float = 0.7, momentum: float = 0.9
    ):
        self.lr, self.momentum = np.float32(lr), np.float32(momentum)
        self.steps = self.tokens = 0
        self.apart: dict[str, Any] = {}
        self._group, self._params = group, dict(params)
        self._anchor: dict[str, np.ndarray] = {}
        self._velocity = {n: np.zeros(p.shape, np.float32) for n, p in self._params.items()}
        self.begin()

    def begin(self) -> None:
        """Take the weights as they are for the anchor."""
        self.steps = self.tokens = 0
        self._anchor = {n: np.array(p.numpy(), np.float32) for n, p in self._params.items()}

    def count(self, tokens: int) -> None:
        """Count a step.

        Args:
            tokens: that it trained on.
        """
        self.steps += 1
        self.tokens += tokens

    def sync(self, *sums: float) -> list[float]:
        """Take the outer step; every rank has the same weights afterwards.

        Args:
            sums: numbers of this rank, as many on every rank.

        Returns:
            The sums of these numbers over the ranks.
        """
        moved = {name: self._anchor[name] - p.numpy() for name, p in self._params.items()}
        totals = np.array(sums, np.float64)
        self._group.reduce([*moved.values(), totals])
        for name, total in moved.items():
            mean = total / np.float32(self._group.size)
            anchor, velocity = self._anchor[name], self._velocity[name]
            velocity *= self.momentum
            velocity += mean
            anchor -= self.lr * (mean + self.momentum * velocity)
            self._params[name].copy_(anchor)
        self.steps, self.tokens, self.apart = 0, 0, {}
        return list(map(float, totals))

    def gather(self, state: Any) -> None:
        """Bring the states of all ranks to rank 0, for a checkpoint.

        Args:
            state: of this rank.
        """
        every = self._group.gather_first(state)
        self.apart = {str(rank): each for rank, each in enumerate(every) if rank}

    def state_of(self, rank: int) -> Any:
        """Return the state that a rank goes on with; None is that of rank 0.

        Args:
            rank: may be beyond the ranks that the states were gathered of.
        """
        return self.apart.get(str(rank % (len(self.apart) + 1)))

    def state_dict(self) -> dict[str, Any]:
        """Return the outer momentum by name."""
        return {name: each.copy() for name, each in self._velocity.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the outer momentum; `begin` takes the anchor.

        Args:
            state: as `state_dict` returned it; {} is no momentum.

        Raises:
            KeyError: a name is missing.
            ValueError: an array has another shape.
        """
        found = {}
        for name, own in self._velocity.items():
            found[name] = np.array(state[name], np.float32) if state else np.zeros_like(own)
            if found[name].shape != own.shape:
                raise ValueError(
                    f"LocalSteps.load_state_dict: {name} must have shape {own.shape}; got "
                    f"{found[name].shape}"
                )
        self._velocity = found
