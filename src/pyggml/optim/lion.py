# SPDX-License-Identifier: MIT
"""Lion: the sign of a mixed momentum."""

from __future__ import annotations

from .. import ops
from ..tensors import Tensor
from .groups import Group, ParamGroups, checked_betas
from .inplace import blend, blending
from .optimizer import Optimizer, State

__all__ = ["Lion"]


class Lion(Optimizer):
    """Step by the sign of the momentum mixed with the gradient; weight decay is decoupled.

    u = sign(b1 * m + (1 - b1) * g);  m = b2 * m + (1 - b2) * g
    w = w * (1 - lr * wd) - lr * u

    Every element moves by lr: a learning rate three to ten times smaller than AdamW's, and a
    weight decay that much larger, is what the paper advises. The state is half of AdamW's.

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        betas: weight of the momentum in the step, and its decay, each in [0, 1).
        weight_decay: wd of groups that name none, >= 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: Chen et al. 2023, arXiv:2302.06675, algorithm 2.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = Lion([w], lr=0.25)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> w.item()
        0.75
    """

    state_names = ("m",)

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        fused_update: bool = False,
    ) -> None:
        self.betas = checked_betas("Lion", betas)
        super().__init__(params, lr, weight_decay, fused_update)
        self._mean = blending(self.betas[1], 1.0 - self.betas[1], self.params[0])

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        b1, momentum = self.betas[0], state["m"]
        mixed = ops.add(ops.scale(momentum, b1), ops.scale(grad, 1.0 - b1))
        step = ops.opt_step_sgd(param, ops.sgn(mixed), group.hyper)
        return [step, blend(momentum, grad, self._mean)]
