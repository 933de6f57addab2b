# SPDX-License-Identifier: MIT
"""Masks of attention as numbers that are added to the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...tensors import Tensor, tensor
from ...tensors.truth import is_mask

__all__ = ["addend"]


def addend(mask: Any, like: Tensor, hidden: bool = False) -> Any:
    """Return what is added to the scores: of truth values 0 where seen and -inf where hidden.

    Other tensors come back as they are.

    Args:
        mask: a comparison, NumPy booleans, or what is added already.
        like: a tensor on the device.
        hidden: true means hidden, not seen.
    """
    if isinstance(mask, Tensor):
        if not is_mask(mask.node):
            return mask
        return ops.log(ops.logical_not(mask) if hidden else mask)
    truth = np.asarray(mask)
    if truth.dtype != bool:
        return mask
    return tensor(np.where(truth != hidden, 0.0, -np.inf), "f32", like.device)
