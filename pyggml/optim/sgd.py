# SPDX-License-Identifier: MIT
"""SGD: plain stochastic gradient descent."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..tensor import Tensor
from .optimizer import Group, Optimizer, ParamGroups

__all__ = ["SGD"]


class SGD(Optimizer):
    """Step against the gradient; shrink the weights apart.

    w = w * (1 - lr * wd) - lr * g

    Args:
        params: tensors or groups; see `Optimizer`.
        lr: learning rate, >= 0.
        weight_decay: wd of groups that name none, >= 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: ggml_opt_step_sgd.

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
        weight_decay: float = 0.0,
        fused_update: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay, fused_update)

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        return np.asarray([lr, group.weight_decay], np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: list[Tensor], hyper: Tensor) -> Tensor:
        return ops.opt_step_sgd(param, grad, hyper)
