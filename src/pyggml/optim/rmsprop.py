# SPDX-License-Identifier: MIT
"""RMSprop and Adagrad: the gradient over the root of its squares, averaged or summed."""

from __future__ import annotations

import numpy as np

from .. import checks, ops
from ..tensors import Tensor
from .groups import Group, ParamGroups
from .inplace import blend, blending
from .optimizer import Optimizer, State

__all__ = ["Adagrad", "RMSprop"]

_F32_MAX = float(np.finfo(np.float32).max)


class RMSprop(Optimizer):
    """Divide the gradient by the root of its running mean square.

    g' = g + wd * w;  v = alpha * v + (1 - alpha) * g'^2;  u = g' / (sqrt(v) + eps)
    b = momentum * b + u;  w = w - lr * b
    centered: sqrt(v - a^2) with a the running mean of g'

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        alpha: decay of the mean square, in [0, 1).
        eps: added to the root, > 0.
        weight_decay: wd of groups that name none, >= 0.
        momentum: what is kept of the running sum of steps, in [0, 1).
        centered: divide by the standard deviation instead.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: Tieleman and Hinton 2012, lecture 6.5; centered: Graves 2013, arXiv:1308.0850;
        torch.optim.RMSprop.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = RMSprop([w], lr=0.1, alpha=0.75)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> round(w.item(), 4)
        0.8
    """

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        fused_update: bool = False,
    ) -> None:
        self.alpha = checks.f32("RMSprop", "alpha", alpha, 0.0, below=1.0)
        self.eps = checks.f32("RMSprop", "eps", eps, above=0.0)
        self.momentum = checks.f32("RMSprop", "momentum", momentum, 0.0, below=1.0)
        self.centered = checks.flag("RMSprop", "centered", centered)
        self._couples = True
        self.state_names = ("v", *("a" * self.centered), *("b" * bool(self.momentum)))
        super().__init__(params, lr, weight_decay, fused_update)
        self._mean = blending(self.alpha, 1.0 - self.alpha, self.params[0])
        self._sum = blending(self.momentum, 1.0, self.params[0])

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        squares = blend(state["v"], ops.sqr(grad), self._mean)
        if self.centered:
            mean = blend(state["a"], grad, self._mean)
            # Rounding can make the variance of equal gradients negative.
            squares = ops.clamp(ops.sub(squares, ops.sqr(mean)), 0.0, _F32_MAX)
        step = ops.div(grad, ops.scale(ops.sqrt(squares), 1.0, self.eps))
        if self.momentum:
            step = blend(state["b"], step, self._sum)
        return [ops.opt_step_sgd(param, step, group.hyper)]


class Adagrad(Optimizer):
    """Divide the gradient by the root of the sum of its squares so far.

    g' = g + wd * w;  v = v + g'^2
    w = w - lr / (1 + (t - 1) * lr_decay) * g' / (sqrt(v) + eps)

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        lr_decay: how fast the learning rate falls, >= 0.
        weight_decay: wd of groups that name none, >= 0.
        initial_accumulator_value: v before the first step, >= 0.
        eps: added to the root, > 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: Duchi et al. 2011; torch.optim.Adagrad.

    Example:
        >>> w = Parameter([1.0])
        >>> opt = Adagrad([w], lr=0.1)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> round(w.item(), 4)
        0.9
    """

    state_names = ("v",)
    _couples = True

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        fused_update: bool = False,
    ) -> None:
        self.lr_decay = checks.f32("Adagrad", "lr_decay", lr_decay, 0.0)
        start = checks.f32("Adagrad", "initial_accumulator_value", initial_accumulator_value, 0.0)
        self.eps = checks.f32("Adagrad", "eps", eps, above=0.0)
        super().__init__(params, lr, weight_decay, fused_update)
        self._sum = blending(1.0, 1.0, self.params[0])
        if start:
            for kinds in self.state:
                kinds["v"].copy_(np.full(kinds["v"].shape, start, np.float32))

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        slower = 1.0 + (max(self.steps, 1) - 1) * self.lr_decay
        return np.asarray([lr / slower, 0.0], np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        squares = blend(state["v"], ops.sqr(grad), self._sum)
        step = ops.div(grad, ops.scale(ops.sqrt(squares), 1.0, self.eps))
        return [ops.opt_step_sgd(param, step, group.hyper)]
