# SPDX-License-Identifier: MIT
"""Causal self-attention: rotary positions, grouped heads, key-value cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..ops._check import need_tensor
from ..tensor import Tensor
from . import functional, init
from .cache import LayerCache
from .layers import Linear, check_sizes
from .masks import causal_mask, position_ids
from .module import Module

__all__ = ["CausalSelfAttention", "Rope"]

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
