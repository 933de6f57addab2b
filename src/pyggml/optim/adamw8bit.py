# SPDX-License-Identifier: MIT
"""AdamW whose moments are kept in blocks of eight-bit numbers."""

from __future__ import annotations

import math

import numpy as np

from .. import checks, ops
from ..tensors import Tensor
from .adamw import AdamW
from .groups import Group, ParamGroups
from .inplace import assign
from .optimizer import Spec, State

__all__ = ["AdamW8bit"]

# A block's scale is f16. With this factor on the roots it is exact to its 11 bits for gradients
# from 4e-12 to 4e6; below that they lose bits, above they are held at the largest that fits.
_UNIT = 2.0**12
_LARGEST = 65504.0 * 127.0
_BLOCK = 32
# Rows of several blocks: ggml gives its threads whole rows.
_WIDEST = 1024


class AdamW8bit(AdamW):
    """`AdamW` with moments in q8_0 blocks: 3.2 bytes for each parameter instead of 8.

    Of the first moment the signed square root is stored, of the second moment the fourth root:
    what is small beside its neighbours in a block of 32 keeps its digits. The second moment
    changes by a thousandth in a step, less than eight bits can tell: a second code keeps what the
    first one left over.

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: learning rate, >= 0.
        betas: decay of the two moments, each in [0, 1).
        eps: added to the root, > 0.
        weight_decay: wd of groups that name none, >= 0.
        min_8bit_size: parameters with fewer elements, and those whose number of elements is no
            multiple of 32, keep f32 moments.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range; see also `Optimizer`.

    Source: Dettmers et al. 2022, arXiv:2110.02861 (blocks, small tensors apart); the roots and
        the second code are this project's; ggml's q8_0.

    Example:
        >>> w = Parameter(np.ones((64, 64), np.float32))
        >>> AdamW8bit([w]).nbytes, AdamW([w]).nbytes
        (13056, 32768)
    """

    _folds = False

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        min_8bit_size: int = 4096,
        fused_update: bool = False,
    ) -> None:
        self.min_8bit_size = checks.whole("AdamW8bit", "min_8bit_size", min_8bit_size, 0)
        super().__init__(params, lr, betas, eps, weight_decay, fused_update=fused_update)

    def _state_specs(self, param: Tensor, group: Group) -> dict[str, Spec]:
        width = math.gcd(param.numel(), _WIDEST)
        if param.numel() < self.min_8bit_size or width % _BLOCK:
            return super()._state_specs(param, group)
        return dict.fromkeys(("m", "v", "v_rest"), ((param.numel() // width, width), "q8_0"))

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        b1, b2 = self.betas
        t = max(self.steps, 1)
        # The corrections of both moments in the learning rate, and eps to match.
        slower, faster = math.sqrt(1 - b2**t), 1 - b1**t
        small = [lr * slower / faster, group.weight_decay * faster / slower, self.eps * slower]
        return np.asarray([*small, *super()._hyper(group, lr)], np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        if "v_rest" not in state:
            hyper = group.hyper[3:10]
            return [ops.opt_step_adamw(param, grad, state["m"], state["v"], hyper)]
        b1, b2 = self.betas
        g = ops.reshape(grad, state["m"].shape)
        root = ops.cast(state["m"], "f32")
        m = ops.scale(ops.mul(root, ops.abs(root)), b1 / _UNIT**2)
        m = ops.add(m, ops.scale(g, 1.0 - b1))
        root = ops.add(ops.cast(state["v"], "f32"), ops.cast(state["v_rest"], "f32"))
        v = ops.scale(ops.sqr(ops.sqr(root)), b2 / _UNIT**4)
        v = ops.add(v, ops.scale(ops.sqr(g), 1.0 - b2))
        step = ops.div(m, ops.add(ops.sqrt(v), group.hyper[2:3]))
        bound = _bound(b1, b2)
        step = step if bound is None else ops.clamp(step, -bound, bound)
        root_m = ops.mul(ops.sgn(m), ops.sqrt(ops.abs(m)))
        root_v = ops.clamp(ops.scale(ops.sqrt(ops.sqrt(v)), _UNIT), 0.0, _LARGEST)
        stored = assign(state["v"], root_v)
        return [
            ops.opt_step_sgd(param, ops.reshape(step, param.shape), group.hyper[:2]),
            assign(state["m"], ops.clamp(ops.scale(root_m, _UNIT), -_LARGEST, _LARGEST)),
            assign(state["v_rest"], ops.sub(root_v, ops.cast(stored, "f32"))),
        ]


def _bound(b1: float, b2: float) -> float | None:
    """Return the bound of |m| / sqrt(v) but for rounding; None if there is none.

    m and v are sums of (1 - b1) b1^i g and (1 - b2) b2^i g^2: by Cauchy and Schwarz,
    m^2 <= v (1 - b1)^2 / (1 - b2) sum((b1^2 / b2)^i).
    """
    if not b1 * b1 < b2:
        return None
    return (1 - b1) / math.sqrt((1 - b2) * (1 - b1 * b1 / b2))
