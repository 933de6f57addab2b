# SPDX-License-Identifier: MIT
"""Updates in place: running averages, momentum, assignments."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..backend.library import lib
from ..tensors import Tensor, record, tensor
from .clip import sum_of_squares

__all__ = ["adamw_factors", "assign", "blend", "blending", "copied", "mean_square"]


def blending(keep: float, weight: float, like: Tensor) -> Tensor:
    """Return the factors of `blend`, as ggml's SGD step takes them.

    Args:
        keep: factor on what is there.
        weight: factor on what is added, not 0.
        like: a tensor on the same device.
    """
    # x ← x (1 - lr·wd) - lr·y with lr = -weight
    return tensor(np.asarray([-weight, (keep - 1.0) / weight], np.float32), device=like.device)


def blend(state: Tensor, value: Tensor, factors: Tensor) -> Tensor:
    """Set state to keep·state + weight·value in one pass.

    Args:
        state: stored f32 tensor.
        value: what is added.
        factors: what `blending` made of keep and weight.

    Source: ggml_opt_step_sgd.

    Example:
        >>> m = tensor([1.0])
        >>> Graph([], effects=[blend(m, tensor([4.0]), blending(0.5, 0.25, m))]).run()
        >>> m.tolist()
        [1.5]
    """
    return ops.opt_step_sgd(state, value, factors)


def adamw_factors(
    lr: float, betas: tuple[float, float], eps: float, weight_decay: float, steps: int
) -> list[float]:
    """Return the numbers that ggml's AdamW step takes, for update `steps`.

    The op forms 1 - beta from a beta that is rounded to f32, which for 0.99999 is wrong by a
    thousandth. Each moment is kept times the ratio of the two differences, a constant, and the
    ratio is taken out again by the bias correction: the update is that of the exact 1 - beta.
    """
    corrections = []
    for beta in betas:
        ratio = float(np.float32(1.0) - np.float32(beta)) / (1.0 - beta)
        corrections.append(1.0 / ((1.0 - beta ** max(steps, 1)) * ratio))
    return [lr, *betas, eps, weight_decay, *corrections]


def assign(target: Tensor, value: Tensor) -> Tensor:
    """Overwrite a target, converting to its dtype, also a parameter or a quantised one.

    Args:
        target: stored tensor.
        value: f32, of its shape.

    Source: ggml_cpy.
    """
    return record(lib.ggml_cpy, [value, target], target.shape, False)


def copied(x: Tensor) -> Tensor:
    """Copy the elements as they are before x is written. Source: ggml_dup."""
    return record(lib.ggml_dup, [x], x.shape, False)


def mean_square(x: Tensor) -> Tensor:
    """Return the mean of the squares of all elements, ()."""
    return ops.scale(sum_of_squares([x]), 1.0 / x.numel())
