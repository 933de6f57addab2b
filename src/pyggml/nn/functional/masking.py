# SPDX-License-Identifier: MIT
"""Masks of attention as numbers that are added to the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...errors import DTypeError, ShapeError
from ...ops.operands import as_tensor
from ...tensors import Tensor
from ...tensors.truth import is_mask

__all__ = ["addend"]


def addend(
    who: str, name: str, mask: Any, like: Tensor, scores: tuple[int, ...], hidden: bool = False
) -> Tensor:
    """Return what is added to the scores: of truth values 0 where seen and -inf where hidden.

    Other numbers come back as they are.

    Args:
        who: the function or the layer.
        name: the argument.
        mask: a comparison, NumPy booleans, or what is added already.
        like: a tensor on the device.
        scores: their shape, (..., T, S).
        hidden: true means hidden, not seen.

    Raises:
        TypeError: the mask is no tensor, array or list.
        DTypeError: it is neither f32 nor f16.
        ShapeError: it does not fit the scores.
    """
    found = as_tensor(who, name, _numbers(mask, hidden), like)
    if found.dtype.name not in ("f32", "f16"):
        raise DTypeError(
            f"{who}: {name} must be a comparison such as x > 0, booleans of NumPy, or f32 that is"
            f" added; got {found.dtype.name}: use {name} != 0"
        )
    lead = zip(scores[-3::-1], found.shape[-3::-1], strict=False)
    fits = 2 <= found.ndim <= len(scores) and all(
        m in (1, n) for n, m in zip(scores[-2:], found.shape[-2:], strict=True)
    )
    if not fits or any(n % m for n, m in lead):
        raise ShapeError(
            f"{who}: {name} must be (T, S) = {scores[-2:]}, for T queries and S keys, or end in it"
            f" with leading extents that divide {scores[:-2]}; got {name}.shape={found.shape}"
        )
    if isinstance(mask, Tensor) and is_mask(mask.node):
        found = ops.log(ops.logical_not(found) if hidden else found)
    return ops.broadcast_to(found, (*found.shape[:-2], *scores[-2:]))


def _numbers(mask: Any, hidden: bool) -> Any:
    """Return booleans of NumPy as the numbers that are added, anything else as it is."""
    if isinstance(mask, Tensor):
        return mask
    try:
        truth = np.asarray(mask)
    except ValueError:  # ragged lists
        return mask
    return np.where(truth != hidden, 0.0, -np.inf) if truth.dtype == bool else mask
