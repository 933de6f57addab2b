# SPDX-License-Identifier: MIT
"""Causal self-attention: rotary positions, grouped heads, key-value cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .. import ops
from ..device import Device
from ..device import device as find_device
from ..errors import BackendError, ShapeError
from ..ops._check import need_dtype, need_tensor
from ..storage import check_shape
from ..tensor import Tensor, tensor
from . import functional, init
from .cache import LayerCache
from .layers import Linear, check_sizes
from .module import Module

__all__ = ["CausalSelfAttention", "Rope", "causal_mask", "position_ids", "segment_mask"]

ATTENTIONS = ("auto", "plain", "flash")


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: how attention rotates queries and keys.

    Args:
        base: wavelength base theta.
        mode: "neox" pairs element i with i + D / 2 (Hugging Face's layout), "normal" pairs
            neighbours.
        scale: factor on the positions.

    Raises:
        ValueError: base or scale is not positive, or the mode is unknown.

    Source: ggml_rope_ext; Su et al. 2021, arXiv:2104.09864.
    """

    base: float = 10000.0
    mode: str = "neox"
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (self.base > 0 and self.scale > 0):
            raise ValueError(
                f"Rope: base and scale must be > 0; got base={self.base}, scale={self.scale}"
            )
        if self.mode not in ("neox", "normal"):
            raise ValueError(f'Rope: mode must be "neox" or "normal"; got {self.mode!r}')


def _check_room(who: str, *shape: int) -> None:
    """Refuse a constant that is no tensor's, or larger than what is free, before NumPy makes it."""
    size = 8 * math.prod(check_shape(who, shape))  # and a copy
    if not find_device("cpu").has_memory(size):
        raise BackendError(f"{who}: {size:,} bytes are more than is free; use a smaller length")


@lru_cache(maxsize=32)
def causal_mask(length: int, device: Device | None = None, dtype: str = "f32") -> Tensor:
    """Return the constant that hides the future: 0 up to the diagonal, -inf beyond.

    Args:
        length: T; one mask per length, device and dtype is made and shared.
        device: where it lives; None is the default device.
        dtype: "f32", or "f16" for the fused op.

    Shape:
        -> (T, T)

    Raises:
        ShapeError: length is no whole number of at least one.
        BackendError: more than the memory that is free.

    Example:
        >>> causal_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
    """
    _check_room("causal_mask", length, length)
    hidden = np.triu(np.full((length, length), -np.inf, np.float32), k=1)
    return tensor(hidden, dtype, device)


@lru_cache(maxsize=32)
def position_ids(length: int, device: Device | None = None) -> Tensor:
    """Return the constant (T,) i32 tensor 0, 1, ... T - 1, shared like `causal_mask`."""
    _check_room("position_ids", length)
    return tensor(np.arange(length, dtype=np.int32), device=device)


def segment_mask(segments: Tensor, dtype: str = "f32") -> Tensor:
    """Record the mask that hides the future and the other documents of a packed row.

    0 where a token may look, to itself and those before it with its own number; -inf elsewhere.

    Args:
        segments: the number of each token's document, from 0 to 2^24; a training step copies new
            ones in, and the mask follows.
        dtype: "f32", or "f16" for the fused op.

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
    mask = ops.log(1.0 - other) + causal_mask(length, segments.device)  # log 0 is -inf
    return mask if dtype == "f32" else ops.cast(mask, dtype)


class CausalSelfAttention(Module):
    """Attention of every token to itself and those before it.

    The projections carry Hugging Face's names: `q_proj`, `k_proj`, `v_proj`, `o_proj` apart
    as in Llama, or `c_attn`, `c_proj` with q, k and v fused as in GPT-2.

    Args:
        dim: width of the stream.
        n_head: query heads; must divide dim.
        n_kv_head: key-value heads; must divide n_head; None is n_head.
        bias: learn shifts.
        fused: one matrix for q, k and v.
        rope: rotary positions; None when the model learns its positions.
        attention: "plain" computes the T × S scores; "flash" is one fused op that stores none;
            "auto" is "flash" where that is faster: on the CPU, without a cache, and with no mask or
            one of f16.
        init_weight: initialiser of the q, k and v projections; None is Linear's.
        init_out: initialiser of the output projection; None is init_weight.

    Shape:
        x (B, T, dim) -> (B, T, dim)

    Raises:
        ValueError: heads do not divide the width or each other; rope with an odd head size; an
            unknown attention.

    Example:
        >>> CausalSelfAttention(8, 2)(ones((1, 3, 8))).shape
        (1, 3, 8)
    """

    def __init__(
        self,
        dim: int,
        n_head: int,
        n_kv_head: int | None = None,
        *,
        bias: bool = True,
        fused: bool = False,
        rope: Rope | None = None,
        attention: str = "auto",
        init_weight: init.Initializer | None = None,
        init_out: init.Initializer | None = None,
    ) -> None:
        n_kv_head = n_head if n_kv_head is None else n_kv_head
        check_heads("CausalSelfAttention", dim, n_head, n_kv_head, rope is not None)
        check_attention("CausalSelfAttention", attention)
        if not isinstance(rope, (Rope, type(None))):
            raise TypeError(f"CausalSelfAttention: rope must be a Rope; got {type(rope).__name__}")
        self.n_head = n_head
        self.n_kv_head = n_kv_head
        self.head_dim = dim // n_head
        self.rope = rope
        self.fused = fused
        self.attention = attention
        kv_dim = n_kv_head * self.head_dim
        if fused:
            self.c_attn = Linear(dim, dim + 2 * kv_dim, bias, init_weight)
            self.c_proj = Linear(dim, dim, bias, init_out or init_weight)
        else:
            self.q_proj = Linear(dim, dim, bias, init_weight)
            self.k_proj = Linear(dim, kv_dim, bias, init_weight)
            self.v_proj = Linear(dim, kv_dim, bias, init_weight)
            self.o_proj = Linear(dim, dim, bias, init_out or init_weight)

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Attend; with a cache, also to what it holds.

        Args:
            x: the stream.
            positions: of the tokens, one for all sequences or each its own; None is 0 to T - 1.
            mask: scores' addend; None is causal.
            cache: keys and values of this layer; needs positions and mask, whose S columns
                say how many cached rows are read.

        Shape:
            x (B, T, dim), positions (T,) or (B, T) i32, mask (T, S) or (B, 1, T, S) f32
            -> (B, T, dim)

        Raises:
            ShapeError: x is not (B, T, dim), or a shape does not fit it.
            ValueError: a cache without positions or mask.
        """
        if need_tensor("CausalSelfAttention", "x", x).ndim != 3:
            raise ShapeError(f"CausalSelfAttention: x must be (B, T, dim); got {x.shape}")
        batch, length, _ = x.shape
        q, k, v = self._project(x, batch, length)
        if cache is not None and (positions is None or mask is None):
            raise ValueError(
                "CausalSelfAttention: a cache needs positions and mask; got "
                f"positions={'given' if positions is not None else None}, "
                f"mask={'given' if mask is not None else None}"
            )
        if positions is None:
            positions = position_ids(length, x.device)
        flash = self._takes_flash(x, mask, cache)
        if mask is None:
            mask = causal_mask(length, x.device, "f16" if flash else "f32")
        if self.rope is not None:
            q, k = _rotate(self.rope, q, positions), _rotate(self.rope, k, positions)
        if cache is not None:
            k, v = cache.update(k, v, positions, mask.shape[-1])
        project = self.c_proj if self.fused else self.o_proj
        attend = functional.flash_attention if flash else functional.attention
        y: Tensor = project(attend(q, k, v, mask))
        return y

    def _takes_flash(self, x: Tensor, mask: Tensor | None, cache: LayerCache | None) -> bool:
        if self.attention != "auto":
            return self.attention == "flash"
        # A mask of f32 is not rounded for the sake of speed.
        fits = mask is None or mask.dtype.name == "f16"
        return fits and cache is None and x.device.kind == "cpu"

    def _project(self, x: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return q (B, T, H, D), k and v (B, T, G, D)."""
        heads, groups, width = self.n_head, self.n_kv_head, self.head_dim
        if self.fused:
            qkv = self.c_attn(x).reshape(batch, length, heads + 2 * groups, width)
            return (
                qkv[:, :, :heads],
                qkv[:, :, heads : heads + groups],
                qkv[:, :, heads + groups :],
            )
        return (
            self.q_proj(x).reshape(batch, length, heads, width),
            self.k_proj(x).reshape(batch, length, groups, width),
            self.v_proj(x).reshape(batch, length, groups, width),
        )


def _rotate(rope: Rope, x: Tensor, positions: Tensor) -> Tensor:
    """Turn queries or keys (B, T, H, D) by their positions, (T,) or (B, T)."""
    need_tensor("CausalSelfAttention", "positions", positions)
    options: dict[str, Any] = {"mode": rope.mode, "base": rope.base, "scale": rope.scale}
    if positions.ndim < 2:
        return ops.rope(x, positions, **options)
    batch, length, heads, width = x.shape
    if positions.shape != (batch, length):
        raise ShapeError(
            f"CausalSelfAttention: positions must be (T,) or (B, T) = ({batch}, {length}); "
            f"got {positions.shape}"
        )
    # ggml has one row of positions: the sequences follow each other in it.
    rows = x.reshape(batch * length, heads, width)
    turned = ops.rope(rows, positions.reshape(batch * length), **options)
    return turned.reshape(batch, length, heads, width)


def check_attention(where: str, attention: str) -> None:
    """Raise a ValueError unless there is such an attention."""
    if attention not in ATTENTIONS:
        raise ValueError(
            f"{where}: attention must be one of {', '.join(ATTENTIONS)}; got {attention!r}"
        )


def check_heads(where: str, dim: int, n_head: int, n_kv_head: int, rope: bool) -> None:
    """Raise a ValueError unless the heads divide the width and each other."""
    check_sizes(where, n_embd=dim, n_head=n_head, n_kv_head=n_kv_head)
    if dim % n_head:
        raise ValueError(f"{where}: n_head must divide n_embd; got n_embd={dim}, n_head={n_head}")
    if n_head % n_kv_head:
        raise ValueError(
            f"{where}: n_kv_head must divide n_head; got n_head={n_head}, n_kv_head={n_kv_head}"
        )
    if rope and (dim // n_head) % 2:
        raise ValueError(
            f"{where}: rotary positions need an even head size n_embd / n_head; "
            f"got {dim} / {n_head} = {dim // n_head}"
        )
