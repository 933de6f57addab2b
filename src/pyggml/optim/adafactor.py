# SPDX-License-Identifier: MIT
"""Adafactor: a second moment of rows and columns, and steps relative to the weights."""

from __future__ import annotations

import math

import numpy as np

from .. import checks, ops
from ..tensors import Tensor
from .groups import Group, ParamGroups
from .inplace import blend, mean_square
from .optimizer import Optimizer, Spec, State

__all__ = ["Adafactor"]

_F32_MAX = float(np.finfo(np.float32).max)
_F32_EPS = float(np.finfo(np.float32).eps)


class Adafactor(Optimizer):
    """Divide the gradient by the root of a mean square that is stored by rows and columns.

    k = t^beta2_decay;  r = (1 - k) * r + k * mean_columns(g^2);  c likewise over the rows
    u = g / sqrt(r * c / mean(r)), shortened where its root mean square exceeds d
    w = w * (1 - lr * wd) - max(eps2, rms(w)) * min(lr, 1 / sqrt(t)) * u

    The state of a matrix (n, m) is n + m numbers. Vectors keep a mean square for each element.

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: largest step relative to the root mean square of the weights, >= 0.
        beta2_decay: exponent, <= 0: how fast the averages come to hold still.
        eps: least root of the mean square (None is that of f32), and least rms(w); >= 0.
        d: largest root mean square of u, >= 1.
        weight_decay: wd of groups that name none, >= 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: Shazeer and Stern 2018, arXiv:1804.04235; torch.optim.Adafactor.

    Example:
        >>> w = Parameter([[1.0, 1.0]])
        >>> opt = Adafactor([w], lr=0.1)
        >>> (w * 3.0).sum().backward()
        >>> norm = opt.step()
        >>> round(w[0, 0].item(), 4)
        0.9
    """

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        fused_update: bool = False,
    ) -> None:
        self.beta2_decay = checks.f32("Adafactor", "beta2_decay", beta2_decay, most=0.0)
        first, second = checks.items("Adafactor", "eps", eps, 2)
        least = _F32_EPS if first is None else checks.f32("Adafactor", "eps[0]", first, 0.0)
        self.eps = (least, checks.f32("Adafactor", "eps[1]", second, 0.0))
        self.d = checks.f32("Adafactor", "d", d, 1.0)
        super().__init__(params, lr, weight_decay, fused_update)

    def _state_specs(self, param: Tensor, group: Group) -> dict[str, Spec]:
        if param.ndim < 2:
            return {"v": (param.shape, "f32")}
        lead, (rows, columns) = param.shape[:-2], param.shape[-2:]
        return {"r": ((*lead, rows, 1), "f32"), "c": ((*lead, 1, columns), "f32")}

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        t = max(self.steps, 1)
        # lr and wd; how much of lr is left; the factors of the averages, as `blend` takes them.
        left = 1.0 if lr * math.sqrt(t) <= 1.0 else 1.0 / (lr * math.sqrt(t))
        return np.asarray([lr, group.weight_decay, left, -(t**self.beta2_decay), -1.0], np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        least, least_rms = self.eps
        average, squares = group.hyper[3:5], ops.sqr(grad)
        if "v" in state:
            v = blend(state["v"], squares, average)
        else:
            r = blend(state["r"], ops.mean_rows(squares), average)
            c = blend(state["c"], ops.mean(squares, dim=-2, keepdim=True), average)
            mean = ops.clamp(ops.mean(r, dim=-2, keepdim=True), least, _F32_MAX)
            v = ops.mul(r, ops.div(c, mean))
        step = ops.div(grad, ops.sqrt(ops.clamp(v, least * least, _F32_MAX)))
        length = ops.scale(ops.sqrt(mean_square(step)), 1.0 / self.d)
        relative = ops.clamp(ops.sqrt(mean_square(param)), least_rms, _F32_MAX)
        factor = ops.div(ops.mul(relative, group.hyper[2:3]), ops.clamp(length, 1.0, _F32_MAX))
        return [ops.opt_step_sgd(param, ops.mul(step, factor), group.hyper[:2])]
