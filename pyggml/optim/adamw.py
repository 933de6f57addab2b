# SPDX-License-Identifier: MIT
"""AdamW and Adam: adaptive moments, with weight decay apart or in the gradient."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..tensor import Tensor
from ._check import check_betas, check_positive
from .groups import Group, ParamGroups
from .optimizer import Optimizer, State

__all__ = ["Adam", "AdamW"]

_EPS_WHY = ", or a zero gradient divides by zero"


class AdamW(Optimizer):
    """Step along the mean gradient over its root mean square; shrink the weights apart.

    m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2
    w = w * (1 - lr * wd) - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    Args:
        params: tensors or groups; see `Optimizer`.
        lr: learning rate, >= 0.
        betas: decay of the two moments, each in [0, 1).
        eps: added to the root, > 0.
        weight_decay: wd of groups that name none, >= 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: ggml_opt_step_adamw; Loshchilov and Hutter 2019, arXiv:1711.05101.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = AdamW([w], lr=0.1, weight_decay=0.0)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> round(w.item(), 4)
        0.9
    """

    state_names = ("m", "v")
    _folds = True

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        fused_update: bool = False,
    ) -> None:
        who = type(self).__name__
        self.betas = check_betas(who, betas)
        self.eps = check_positive(who, "eps", eps, _EPS_WHY)
        super().__init__(params, lr, weight_decay, fused_update)

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        b1, b2 = self.betas
        t = max(self.steps, 1)
        decay = 0.0 if self._couples else group.weight_decay
        values = [lr, b1, b2, self.eps, decay, 1 / (1 - b1**t), 1 / (1 - b2**t)]
        return np.asarray(values, np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        return [ops.opt_step_adamw(param, grad, state["m"], state["v"], group.hyper)]


class Adam(AdamW):
    """`AdamW` whose weight decay is added to the gradient, and adapted with it.

    g' = g + wd * w, from which both moments are made

    Args:
        params: tensors or groups; see `Optimizer`.
        lr: learning rate, >= 0.
        betas: decay of the two moments, each in [0, 1).
        eps: added to the root, > 0.
        weight_decay: wd of groups that name none, >= 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: ggml_opt_step_adamw; Kingma and Ba 2015, arXiv:1412.6980.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = Adam([w], lr=0.1)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> round(w.item(), 4)
        0.9
    """

    _folds = False
    _couples = True

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        fused_update: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fused_update)
