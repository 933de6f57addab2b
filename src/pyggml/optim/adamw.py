# SPDX-License-Identifier: MIT
"""AdamW and Adam: adaptive moments; weight decay decoupled, or added to the gradient."""

from __future__ import annotations

import math

import numpy as np

from .. import checks, ops
from ..tensors import Tensor
from .groups import Group, ParamGroups, checked_betas
from .inplace import adamw_factors, assign, blend, blending
from .optimizer import Optimizer, State

__all__ = ["Adam", "AdamW"]


class AdamW(Optimizer):
    """Divide the mean gradient by its root mean square; weight decay is decoupled.

    m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2
    w = w * (1 - lr * wd) - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
    amsgrad: v_max = max(v_max, v) instead of v in the last line

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        betas: decay of the two moments, each in [0, 1).
        eps: added to the root, > 0.
        weight_decay: wd of groups that name none, >= 0.
        amsgrad: divide by the largest second moment so far, which is kept, too.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: ggml_opt_step_adamw; Loshchilov and Hutter 2019, arXiv:1711.05101; amsgrad: Reddi et al.
        2018, arXiv:1904.09237, as torch.optim has it.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = AdamW([w], lr=0.1, weight_decay=0.0)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> round(w.item(), 4)
        0.9
    """

    state_names: tuple[str, ...] = ("m", "v")
    _folds = True

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        fused_update: bool = False,
    ) -> None:
        who = type(self).__name__
        self.betas = checked_betas(who, betas)
        self.eps = checks.f32(who, "eps", eps, above=0.0)
        self.amsgrad = checks.flag(who, "amsgrad", amsgrad)
        if self.amsgrad:  # ggml's step keeps no largest moment: ops of their own do it all
            self._folds = False
            self.state_names = ("m", "v", "v_max")
        super().__init__(params, lr, weight_decay, fused_update)
        if self.amsgrad:
            self._means = [blending(b, 1.0 - b, self.params[0]) for b in self.betas]

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        b1, b2 = self.betas
        t = max(self.steps, 1)
        decay = 0.0 if self._couples else group.weight_decay
        if self.amsgrad:
            # The corrections of both moments in the learning rate, and decay and eps to match.
            faster, slower = 1 - b1**t, math.sqrt(1 - b2**t)
            values = [lr * slower / faster, decay * faster / slower, self.eps * slower]
        else:
            values = adamw_factors(lr, self.betas, self.eps, decay, t)
        return np.asarray(values, np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        if self.amsgrad:
            m = blend(state["m"], grad, self._means[0])
            v = blend(state["v"], ops.sqr(grad), self._means[1])
            largest = _maximum(v, state["v_max"])
            step = ops.div(m, ops.add(ops.sqrt(largest), group.hyper[2:]))
            return [
                ops.opt_step_sgd(param, step, group.hyper[:2]),
                assign(state["v_max"], largest),
            ]
        return [ops.opt_step_adamw(param, grad, state["m"], state["v"], group.hyper)]


class Adam(AdamW):
    """`AdamW` with the weight decay added to the gradient.

    g' = g + wd * w, from which both moments are made

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        betas: decay of the two moments, each in [0, 1).
        eps: added to the root, > 0.
        weight_decay: wd of groups that name none, >= 0.
        amsgrad: divide by the largest second moment so far, which is kept, too; see `AdamW`.
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
        amsgrad: bool = False,
        *,
        fused_update: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, fused_update=fused_update)


def _maximum(a: Tensor, b: Tensor) -> Tensor:
    """The larger of two elements, to the last bit, which a sum with a difference would not keep."""
    above = ops.step(ops.sub(a, b))
    return ops.add(ops.mul(a, above), ops.mul(b, ops.scale(above, -1.0, 1.0)))
