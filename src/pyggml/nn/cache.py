# SPDX-License-Identifier: MIT
"""KVCache: keys and values of the tokens already read."""

from __future__ import annotations

import math

import numpy as np

from .. import checks, ops
from ..backend.device import Device
from ..backend.device import device as find_device
from ..errors import OutOfMemoryError, ShapeError
from ..ops.operands import need_tensor
from ..tensors import Tensor, tensor, zeros_group
from .layers import check_sizes
from .rope import Rope

__all__ = ["KVCache", "LayerCache"]


class LayerCache:
    """One layer's keys and values, (B, capacity, G * D) each; part of a `KVCache`.

    Args:
        keys: of every token.
        values: of every token.
        wavelengths: of a dynamic rotary embedding; None where it is constant.

    Raises:
        ShapeError: keys and values have other axes, or different shapes.
        TypeError: one is no tensor.
    """

    def __init__(self, keys: Tensor, values: Tensor, wavelengths: Tensor | None = None) -> None:
        need_tensor("LayerCache", "keys", keys)
        need_tensor("LayerCache", "values", values)
        if keys.ndim != 3 or values.shape != keys.shape:
            raise ShapeError(
                "LayerCache: keys and values must be (B, capacity, G * D) both; got "
                f"{keys.shape} and {values.shape}"
            )
        self.keys = keys
        self.values = values
        self.wavelengths = wavelengths

    def update(self, k: Tensor, v: Tensor, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Write new keys and values at `positions`; return the first `length` of all.

        Args:
            k: new keys.
            v: new values.
            positions: the rows to write, i32, of all sequences or of each its own.
            length: how many rows to return, at most the capacity.

        Shape:
            k (B, T, G, D), v (B, T, G, D), positions (T,) or (B, T) -> two of (B, length, G, D)

        Raises:
            ShapeError: the batch is not the cache's, or a size does not fit it.
            TypeError: an argument is of another kind.
            ValueError: length is below 1.
        """
        length = checks.whole("LayerCache.update", "length", length, 1)
        sequences, capacity, width = self.keys.shape
        if need_tensor("LayerCache.update", "k", k).ndim != 4:
            raise ShapeError(f"LayerCache.update: k must be (B, T, G, D); got {k.shape}")
        if need_tensor("LayerCache.update", "v", v).shape != k.shape:
            raise ShapeError(f"LayerCache.update: v must be as k, {k.shape}; got {v.shape}")
        need_tensor("LayerCache.update", "positions", positions)
        batch, count, groups, head = k.shape
        if batch != sequences or groups * head != width or length > capacity:
            raise ShapeError(
                f"LayerCache.update: k must be (B, T, G, D) with B = {sequences}, G * D = {width},"
                f" and length at most the capacity {capacity}; got k {k.shape}, length {length}"
            )
        found = []
        for rows, new in ((self.keys, k), (self.values, v)):
            written = ops.set_rows(rows, new.reshape(batch, count, width), positions)
            found.append(written.reshape(batch, capacity, groups, head)[:, :length])
        return found[0], found[1]


class KVCache:
    """Preallocated keys and values of a sequence or several, for every layer of a model.

    Args:
        n_layer: attention layers.
        capacity: most tokens held of each sequence.
        n_kv_head: key-value heads.
        head_dim: width of a head.
        device: where it lives; None is the default device.
        rope: the model's rotary positions, if any; a dynamic scaling makes `set_length` count.
        batch: sequences.

    Raises:
        ValueError: a size is not a positive integer; several sequences with a dynamic scaling,
            which turns all of them by the length of one.

    Example:
        >>> KVCache(2, 16, 2, 8).layers[0].keys.shape
        (1, 16, 16)
    """

    def __init__(
        self,
        n_layer: int,
        capacity: int,
        n_kv_head: int,
        head_dim: int,
        device: Device | str | None = None,
        rope: Rope | None = None,
        batch: int = 1,
    ) -> None:
        n_layer, capacity, n_kv_head, head_dim = check_sizes(
            "KVCache", n_layer=n_layer, capacity=capacity, n_kv_head=n_kv_head, head_dim=head_dim
        )
        checks.whole("KVCache", "batch", batch, 1)
        if rope is not None:
            checks.instance("KVCache", "rope", rope, Rope)
        if batch > 1 and rope is not None and rope.is_dynamic:
            raise ValueError(
                f"KVCache: batch must be 1 with dynamic rotary positions; got {batch}: make a "
                "cache for each sequence"
            )
        self.capacity = capacity
        # Zeros, not garbage: hidden rows are multiplied by a weight of 0, and 0 * NaN is NaN.
        shape = (batch, capacity, n_kv_head * head_dim)
        size_bytes = 8 * n_layer * math.prod(shape)
        if not find_device(device).has_memory(size_bytes):
            raise OutOfMemoryError(
                f"KVCache: {n_layer:,} layers take {size_bytes:,} bytes, more than is free; give a "
                "smaller capacity or batch"
            )
        rows = zeros_group([(shape, "f32")] * (2 * n_layer), device)
        self._rope = rope if rope is not None and rope.is_dynamic else None
        self._head_dim = head_dim
        self._wavelengths: Tensor | None = None
        if self._rope is not None:
            first = self._rope.wavelengths(head_dim, 0).astype(np.float32)
            self._wavelengths = tensor(first, device=rows[0].device)
        self.layers = [
            LayerCache(rows[2 * i], rows[2 * i + 1], self._wavelengths) for i in range(n_layer)
        ]

    def set_length(self, length: int) -> bool:
        """Set how many tokens the sequence has with those that are read next.

        A dynamic `RopeScaling` turns all tokens of a longer sequence otherwise. Other models need
        no call.

        Args:
            length: tokens, >= 1.

        Returns:
            True where what the cache holds is of no use any more: all tokens must be read again.

        Example:
            >>> KVCache(1, 16, 2, 8).set_length(9)
            False
        """
        length = checks.whole("KVCache.set_length", "length", length, 1)
        if self._rope is None or self._wavelengths is None:
            return False
        new = self._rope.wavelengths(self._head_dim, length).astype(np.float32)
        if np.array_equal(new, self._wavelengths.numpy()):
            return False
        self._wavelengths.copy_(new)
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)
