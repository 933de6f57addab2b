# SPDX-License-Identifier: MIT
"""AdamW: adaptive moments with decoupled weight decay."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..tensor import Tensor
from .optimizer import Group, Optimizer, ParamGroups, check_number

__all__ = ["AdamW"]


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

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        fused_update: bool = False,
    ) -> None:
        self.betas = (
            check_number("AdamW", "betas[0]", betas[0], below=1.0),
            check_number("AdamW", "betas[1]", betas[1], below=1.0),
        )
        self.eps = check_number("AdamW", "eps", eps)
        if self.eps == 0:
            raise ValueError("AdamW: eps must be > 0, or a zero gradient divides by zero; got 0")
        super().__init__(params, lr, weight_decay, fused_update)

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        b1, b2 = self.betas
        t = max(self.steps, 1)
        values = [lr, b1, b2, self.eps, group.weight_decay, 1 / (1 - b1**t), 1 / (1 - b2**t)]
        return np.asarray(values, np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: list[Tensor], hyper: Tensor) -> Tensor:
        return ops.opt_step_adamw(param, grad, state[0], state[1], hyper)
