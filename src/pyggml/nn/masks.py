# SPDX-License-Identifier: MIT
"""Masks: which keys a query sees, as numbers added to the scores."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .. import ops
from ..backend.device import Device
from ..backend.device import device as find_device
from ..errors import OutOfMemoryError, ShapeError
from ..ops.operands import need_dtype, need_tensor
from ..tensors import Tensor, tensor
from ..tensors.storage import check_shape
from .layers import check_sizes

__all__ = ["causal_mask", "padding_mask", "position_ids", "segment_mask", "window_mask"]

# Added where a row is filled up. Finite, so that a row of nothing but filling has no NaN; beyond
# it exp() is 0 in either dtype.
_HIDDEN = {"f32": 1e30, "f16": 6e4}


def _check_room(who: str, *shape: int) -> None:
    """Raise for a constant larger than a tensor can be, or than free memory, before it is made."""
    size = 8 * math.prod(check_shape(who, shape))  # and a copy
    if not find_device("cpu").has_memory(size):
        raise OutOfMemoryError(f"{who}: {size:,} bytes are more than is free; use a smaller length")


@lru_cache(maxsize=32)
def causal_mask(
    length: int, device: Device | None = None, dtype: str = "f32", window: int | None = None
) -> Tensor:
    """Return the constant that hides the future: 0 up to the diagonal, -inf beyond.

    Args:
        length: T; one mask per length, device, dtype and window is made and shared.
        device: where it lives; None is the default device.
        dtype: "f32", or "f16" for the fused op.
        window: how many tokens a token sees, itself among them; None is all before it.

    Shape:
        -> (T, T)

    Raises:
        TypeError: length or window is no whole number.
        ShapeError: length is below 1.
        ValueError: window is below 1.
        OutOfMemoryError: more than the memory that is free.

    Source: the window: Child et al. 2019, arXiv:1904.10509; Jiang et al. 2023, arXiv:2310.06825.

    Example:
        >>> causal_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        >>> causal_mask(3, window=2).tolist()[2]
        [-inf, 0.0, 0.0]
    """
    _check_room("causal_mask", length, length)
    hidden = np.triu(np.full((length, length), -np.inf, np.float32), k=1)
    if window is not None:
        (window,) = check_sizes("causal_mask", window=window)
        hidden += np.tril(np.full((length, length), -np.inf, np.float32), k=-window)
    return tensor(hidden, dtype, device)


@lru_cache(maxsize=32)
def window_mask(
    length: int, reach: int, device: Device | None = None, dtype: str = "f32"
) -> Tensor:
    """Return the constant that hides what is far: 0 up to `reach` tokens to each side, -inf beyond.

    Args:
        length: T; one mask per length, reach, device and dtype is made and shared.
        reach: how far a token sees.
        device: where it lives; None is the default device.
        dtype: "f32", or "f16" for the fused op.

    Shape:
        -> (T, T)

    Source: Beltagy et al. 2020, arXiv:2004.05150.

    Example:
        >>> window_mask(3, 1).tolist()[0]
        [0.0, 0.0, -inf]
    """
    _check_room("window_mask", length, length)
    at = np.arange(length)
    far = np.abs(at[:, None] - at) > reach
    return tensor(np.where(far, -np.inf, 0.0).astype(np.float32), dtype, device)


@lru_cache(maxsize=32)
def position_ids(length: int, device: Device | None = None) -> Tensor:
    """Return the constant (T,) i32 tensor 0, 1, ... T - 1, shared like `causal_mask`."""
    _check_room("position_ids", length)
    return tensor(np.arange(length, dtype=np.int32), device=device)


def segment_mask(segments: Tensor, dtype: str = "f32", window: int | None = None) -> Tensor:
    """Record the mask that hides the future and the other documents of a packed row.

    0 where a token may look, to itself and those before it with its own number; -inf elsewhere.

    Args:
        segments: the number of each token's document, from 0 to 2^24; a training step copies new
            ones in, and the mask follows.
        dtype: "f32", or "f16" for the fused op.
        window: how many tokens a token sees; see `causal_mask`.

    Shape:
        segments (B, T) i32 -> (B, 1, T, T)

    Raises:
        ShapeError: segments are not (B, T).
        DTypeError: segments are not i32.

    Source: Krell et al. 2021, arXiv:2107.02027.

    Example:
        >>> segment_mask(tensor([[0, 0, 1]])).tolist()[0][0]
        [[0.0, -inf, -inf], [0.0, 0.0, -inf], [-inf, -inf, 0.0]]
    """
    need_dtype("segment_mask", "segments", need_tensor("segment_mask", "segments", segments), "i32")
    if segments.ndim != 2:
        raise ShapeError(f"segment_mask: segments must be (B, T); got {segments.shape}")
    batch, length = segments.shape
    number = ops.cast(segments, "f32")
    query, key = number.reshape(batch, 1, length, 1), number.reshape(batch, 1, 1, length)
    other = ops.step(ops.abs(query - key))
    seen = causal_mask(length, segments.device, window=window)
    mask = ops.log(1.0 - other) + seen  # log 0 is -inf
    return mask if dtype == "f32" else ops.cast(mask, dtype)


def padding_mask(attention_mask: Tensor, length: int, dtype: str = "f32") -> Tensor:
    """Record the mask that hides padding.

    Args:
        attention_mask: 1 where a token counts, 0 where it fills up, as tokenizers give it.
        length: T, number of queries.
        dtype: "f32", or "f16" for the fused op.

    Shape:
        attention_mask (B, S) i32 -> (B, 1, T, S)

    Raises:
        ShapeError: attention_mask is not (B, S).
        DTypeError: attention_mask is not i32.

    Example:
        >>> padding_mask(tensor([[1, 0]]), 1).numpy().tolist()[0][0][0][1] < -1e29
        True
    """
    who = "padding_mask"
    need_dtype(who, "attention_mask", need_tensor(who, "attention_mask", attention_mask), "i32")
    if attention_mask.ndim != 2:
        raise ShapeError(f"{who}: attention_mask must be (B, S); got {attention_mask.shape}")
    (length,) = check_sizes(who, length=length)
    batch, keys = attention_mask.shape
    far = _HIDDEN.get(dtype, _HIDDEN["f32"])
    row = ops.scale(ops.step(ops.cast(attention_mask, "f32")), far, -far)
    mask = ops.broadcast_to(row.reshape(batch, 1, 1, keys), (batch, 1, length, keys))
    return mask if dtype == "f32" else ops.cast(mask, dtype)
