# SPDX-License-Identifier: MIT
"""SGD: stochastic gradient descent, with momentum if wished."""

from __future__ import annotations

from .. import checks, ops
from ..tensors import Tensor
from .groups import Group, ParamGroups
from .inplace import blend, blending
from .optimizer import Optimizer, State

__all__ = ["SGD"]


class SGD(Optimizer):
    """Step against the gradient, or against a running sum of the gradients.

    g' = g + wd * w;  b = momentum * b + g';  w = w - lr * b
    Nesterov: w = w - lr * (g' + momentum * b)

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        momentum: what is kept of the running sum, in [0, 1).
        weight_decay: wd of groups that name none, >= 0.
        nesterov: look ahead; needs momentum.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: ggml_opt_step_sgd; Sutskever et al. 2013; torch.optim.SGD.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = SGD([w], lr=0.5)
        >>> (w * 2.0).sum().backward()
        >>> norm = opt.step()
        >>> w.tolist()
        [0.0]
    """

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        fused_update: bool = False,
    ) -> None:
        self.momentum = checks.f32("SGD", "momentum", momentum, 0.0, below=1.0)
        self.nesterov = checks.flag("SGD", "nesterov", nesterov)
        if self.nesterov and not self.momentum:
            raise ValueError("SGD: nesterov needs momentum > 0; got 0")
        # Without momentum, decay in the gradient and decay apart are the same step.
        self._folds = not self.momentum
        self._couples = bool(self.momentum)
        self.state_names = ("b",) if self.momentum else ()
        super().__init__(params, lr, weight_decay, fused_update)
        if self.momentum:
            self._sum = blending(self.momentum, 1.0, self.params[0])

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        if not self.momentum:
            return [ops.opt_step_sgd(param, grad, group.hyper)]
        step = blend(state["b"], grad, self._sum)
        if self.nesterov:
            step = ops.add(grad, ops.scale(step, self.momentum))
        return [ops.opt_step_sgd(param, step, group.hyper)]
