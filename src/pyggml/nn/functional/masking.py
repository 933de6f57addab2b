# SPDX-License-Identifier: MIT
"""Masks of attention as numbers that are added to the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...checks import flag
from ...errors import DTypeError, ShapeError
from ...ops.operands import as_tensor
from ...tensors import Tensor
from ...tensors.truth import is_mask

__all__ = ["addend", "hiding"]


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
    return _fitted(who, name, _added(who, name, mask, like, hidden), scores)


def hiding(who: str, like: Tensor, scores: tuple[int, ...], **given: Any) -> Tensor | None:
    """Return what several masks add to the scores together, or None.

    Args:
        who: the layer.
        like: a tensor on the device.
        scores: their shape, (B, H, T, S).
        given: the masks by their arguments, true where hidden: `…is_causal` is a flag that hides
            what comes later, `…key_padding_mask` (B, S), others (T, S) or as of `addend`. None
            hides nothing.

    Raises:
        ShapeError: a mask does not fit.
    """
    batch, heads, length, columns = scores
    total = None
    for name, mask in given.items():
        if name.endswith("is_causal"):
            if not flag(who, name, mask):
                continue
            later = np.triu(np.ones((length, columns), bool), 1)
            found = _added(who, name, later, like, True)
        elif mask is None:
            continue
        else:
            found = _added(who, name, mask, like, True)
            if name.endswith("key_padding_mask"):
                found = _of_keys(who, name, found, (batch, columns))
            elif found.shape == (batch * heads, length, columns):  # PyTorch's third shape
                found = found.reshape(scores)
        found = _fitted(who, name, found, scores)
        total = found if total is None else ops.add(_f32(total), _f32(found))
    return total


def _f32(x: Tensor) -> Tensor:
    return ops.cast(x, "f32")


def _of_keys(who: str, name: str, mask: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a mask of keys as one of scores."""
    if mask.shape != shape:
        raise ShapeError(
            f"{who}: {name} must be (B, S) = {shape}, for B rows and S keys; got {mask.shape}:"
            " a mask of queries and keys is another argument"
        )
    return mask.reshape(shape[0], 1, 1, shape[1])


def _added(who: str, name: str, mask: Any, like: Tensor, hidden: bool) -> Tensor:
    """Return what is added where a mask is, in its own shape."""
    given = _numbers(mask, hidden)
    kind = given.dtype.name if isinstance(given, (Tensor, np.ndarray)) else "f32"
    if kind not in ("f32", "f16", "float64", "float32", "float16"):
        true = f"{name} != 0" if not hidden else f"{name} != 0, which is true where hidden"
        raise DTypeError(
            f"{who}: {name} must be a comparison such as x > 0, booleans of NumPy, or decimal"
            f" numbers that are added; got {kind}: use {true}"
        )
    found = as_tensor(who, name, given, like)
    if isinstance(mask, Tensor) and is_mask(mask.node):
        return ops.log(ops.logical_not(found) if hidden else found)
    return found


def _fitted(who: str, name: str, found: Tensor, scores: tuple[int, ...]) -> Tensor:
    """Return a mask with an element for each query and key."""
    lead = zip(scores[-3::-1], found.shape[-3::-1], strict=False)
    fits = 2 <= found.ndim <= len(scores) and all(
        m in (1, n) for n, m in zip(scores[-2:], found.shape[-2:], strict=True)
    )
    if not fits or any(n % m for n, m in lead):
        raise ShapeError(
            f"{who}: {name} must be (T, S) = {scores[-2:]}, for T queries and S keys, or end in it"
            f" with leading extents that divide {scores[:-2]}; got {name}.shape={found.shape}"
        )
    return ops.broadcast_to(found, (*found.shape[:-2], *scores[-2:]))


def _numbers(mask: Any, hidden: bool) -> Any:
    """Return a tensor as it is, and an array; of booleans the numbers that are added."""
    if isinstance(mask, Tensor):
        return mask
    try:
        truth = np.asarray(mask)
    except ValueError:  # ragged lists
        return mask
    if truth.dtype == bool:
        return np.where(truth != hidden, 0.0, -np.inf)
    return truth if truth.dtype.kind in "iuf" else mask
