# SPDX-License-Identifier: MIT
"""Running averages, momentum and the like: one pass, in place, by ggml's SGD step."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..tensor import Tensor, tensor

__all__ = ["blend", "blending"]


def blending(keep: float, gain: float, like: Tensor) -> Tensor:
    """The factors of `blend`, as ggml's SGD step takes them.

    Args:
        keep: factor on what is there.
        gain: factor on what is added, not 0.
        like: a tensor on the same device.
    """
    # x ← x (1 - lr·wd) - lr·y with lr = -gain
    return tensor(np.asarray([-gain, (keep - 1.0) / gain], np.float32), device=like.device)


def blend(state: Tensor, value: Tensor, factors: Tensor) -> Tensor:
    """state ← keep·state + gain·value in one pass, in place.

    Args:
        state: stored f32 tensor.
        value: what is added.
        factors: what `blending` made of keep and gain.

    Source: ggml_opt_step_sgd.

    Example:
        >>> m = tensor([1.0])
        >>> Graph([], effects=[blend(m, tensor([4.0]), blending(0.5, 0.25, m))]).run()
        >>> m.tolist()
        [1.5]
    """
    return ops.opt_step_sgd(state, value, factors)
