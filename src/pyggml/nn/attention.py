# SPDX-License-Identifier: MIT
"""Causal self-attention: rotary positions, grouped heads, key-value cache."""

from __future__ import annotations

from .. import checks
from ..errors import ShapeError
from ..ops.attention import computes_flash_attn
from ..ops.operands import need_tensor
from ..tensors import Tensor
from ..tensors.on_demand import on_demand
from . import functional, init
from .cache import LayerCache
from .layers import Linear, RMSNorm, check_sizes
from .masks import causal_mask, position_ids
from .module import Module, Parameter
from .rope import Rope

__all__ = ["CausalSelfAttention"]

ATTENTIONS = ("auto", "plain", "flash")


class CausalSelfAttention(Module):
    """Attention of every token to itself and those before it.

    The projections carry Hugging Face's names: `q_proj`, `k_proj`, `v_proj`, `o_proj` apart
    as in Llama, or `c_attn`, `c_proj` with q, k and v fused as in GPT-2.

    Args:
        dim: width of the stream.
        n_head: query heads; must divide dim.
        n_kv_head: key-value heads; must divide n_head; None is n_head.
        bias: learn biases; "qkv" learns those of q, k and v alone.
        fused: one matrix for q, k and v: True for GPT-2's names, or the names of the two matrices.
        rope: rotary positions; None when the model learns its positions.
        head_dim: width of a head; None is dim / n_head.
        qk_norm: eps of RMS norms over each head of q and k, or two modules that norm q (B, T, H, D)
            and k (B, T, G, D); None has none.
        window: how many tokens a token sees, itself among them; None is all before it.
        scale: factor of the scores; None is 1 / sqrt(head_dim).
        softcap: above 0, scores become softcap * tanh(score / softcap).
        sinks: learn one more score for each head, which takes its share and gives nothing.
        attention: "plain" computes the T × S scores; "flash" is one fused op that stores none;
            "auto" is "flash" with no mask or one of f16, on a device that computes the op and its
            gradient for heads of this width; with a cache, on the CPU only.
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
        bias: bool | str = True,
        fused: bool | tuple[str, str] = False,
        rope: Rope | None = None,
        head_dim: int | None = None,
        qk_norm: float | tuple[Module, Module] | None = None,
        window: int | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        sinks: bool = False,
        attention: str = "auto",
        init_weight: init.Initializer | None = None,
        init_out: init.Initializer | None = None,
    ) -> None:
        n_kv_head = n_head if n_kv_head is None else n_kv_head
        check_heads("CausalSelfAttention", dim, n_head, n_kv_head, rope is not None, head_dim)
        if window is not None:
            check_sizes("CausalSelfAttention", window=window)
        if not isinstance(bias, str):
            bias = checks.flag("CausalSelfAttention", "bias", bias)
        elif bias != "qkv":
            raise ValueError(
                f'CausalSelfAttention: bias must be True, False or "qkv"; got {bias!r}'
            )
        if not isinstance(fused, tuple):
            fused = checks.flag("CausalSelfAttention", "fused", fused)
        check_attention("CausalSelfAttention", attention)
        if rope is not None:
            checks.instance("CausalSelfAttention", "rope", rope, Rope, "give None for no positions")
        self.n_head = n_head
        self.n_kv_head = n_kv_head
        self.head_dim = dim // n_head if head_dim is None else head_dim
        self.rope = rope
        self.window = window
        self.attention = attention
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.softcap = checks.number("CausalSelfAttention", "softcap", softcap, 0.0)
        inner, kv_dim = n_head * self.head_dim, n_kv_head * self.head_dim
        first, last = bool(bias), bias is True
        self._fused, self._last = "", "o_proj"
        if fused:
            names = fused if isinstance(fused, tuple) else ("c_attn", "c_proj")
            names = checks.items("CausalSelfAttention", "fused", names, 2)
            self._fused, self._last = checks.names("CausalSelfAttention", "fused", names)
            setattr(self, self._fused, Linear(dim, inner + 2 * kv_dim, first, init_weight))
        else:
            self.q_proj = Linear(dim, inner, first, init_weight)
            self.k_proj = Linear(dim, kv_dim, first, init_weight)
            self.v_proj = Linear(dim, kv_dim, first, init_weight)
        drawn = init_weight if init_out is None else init_out
        setattr(self, self._last, Linear(inner, dim, last, drawn))
        self.sinks = (
            Parameter(init.constant(0.0)((n_head,)))
            if checks.flag("CausalSelfAttention", "sinks", sinks)
            else None
        )
        self.q_norm: Module | None = None
        self.k_norm: Module | None = None
        if isinstance(qk_norm, tuple):
            self.q_norm, self.k_norm = qk_norm
        elif qk_norm is not None:
            self.q_norm, self.k_norm = (RMSNorm(self.head_dim, qk_norm) for _ in "qk")

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Attend to the tokens of `x` and, with a cache, to those in the cache.

        Args:
            x: the stream.
            positions: of the tokens, one for all sequences or each its own; None is 0 to T - 1.
            mask: scores' addend; None is causal, within the window.
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
        if cache is not None and (positions is None or mask is None):
            raise ValueError(
                "CausalSelfAttention: a cache needs positions and mask; got "
                f"positions={'given' if positions is not None else None}, "
                f"mask={'given' if mask is not None else None}"
            )
        if positions is None:
            positions = position_ids(length, x.device)
        if mask is not None:
            need_tensor("CausalSelfAttention", "mask", mask)
        flash = self._takes_flash(x, mask, cache)
        if mask is None:
            mask = causal_mask(length, x.device, "f16" if flash else "f32", self.window)
        last = getattr(self, self._last)
        if self._is_plain and cache is None:
            qkv = getattr(self, self._fused)(x)
            sizes = self.n_head, self.n_kv_head, self.head_dim
            y: Tensor = last(
                _attended(qkv, mask, sizes, self.scale, self.softcap, self.sinks, flash)
            )
            return y
        q, k, v = self._project(x, batch, length)
        q = q if self.q_norm is None else self.q_norm(q)
        k = k if self.k_norm is None else self.k_norm(k)
        scale = self.scale
        if self.rope is not None:
            dynamic = cache is not None and self.rope.is_dynamic
            wavelengths = cache.wavelengths if cache is not None and dynamic else None
            q = self.rope.rotate(q, positions, length, wavelengths)
            k = self.rope.rotate(k, positions, length, wavelengths)
            q, scale = self.rope.sharpen(q, scale)
        if cache is not None:
            k, v = cache.update(k, v, positions, mask.shape[-1])
        attend = functional.flash_attention if flash else functional.attention
        y = last(attend(q, k, v, mask, scale, softcap=self.softcap, sinks=self.sinks))
        return y

    @property
    def _is_plain(self) -> bool:
        """True if q, k and v are parts of one product, and nothing else is done to them."""
        norms = self.q_norm is not None or self.k_norm is not None
        return bool(self._fused) and self.rope is None and not norms

    def _takes_flash(self, x: Tensor, mask: Tensor | None, cache: LayerCache | None) -> bool:
        if self.attention != "auto":
            return self.attention == "flash"
        # A mask of f32 is not rounded for the sake of speed; nor are keys and values, as kernels of
        # GPUs for a few queries do it.
        fits = mask is None or mask.dtype.name == "f16"
        if not fits or (cache is not None and x.device.kind != "cpu"):
            return False
        softcap, sinks = self.softcap > 0, self.sinks is not None
        return computes_flash_attn(x.device, self.head_dim, softcap, sinks)

    def _project(self, x: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return q (B, T, H, D), k and v (B, T, G, D)."""
        heads, groups, width = self.n_head, self.n_kv_head, self.head_dim
        if self._fused:
            return _parts(getattr(self, self._fused)(x), (heads, groups, width))
        return (
            self.q_proj(x).reshape(batch, length, heads, width),
            self.k_proj(x).reshape(batch, length, groups, width),
            self.v_proj(x).reshape(batch, length, groups, width),
        )


def _parts(qkv: Tensor, sizes: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Divide (B, T, (H + 2G) D) into q (B, T, H, D), k and v (B, T, G, D); sizes are H, G, D."""
    heads, groups, width = sizes
    qkv = qkv.reshape(*qkv.shape[:2], heads + 2 * groups, width)
    return qkv[:, :, :heads], qkv[:, :, heads : heads + groups], qkv[:, :, heads + groups :]


@on_demand
def _attended(
    qkv: Tensor,
    mask: Tensor,
    sizes: tuple[int, int, int],
    scale: float,
    softcap: float,
    sinks: Tensor | None,
    flash: bool,
) -> Tensor:
    """Attend with the parts of one product."""
    attend = functional.flash_attention if flash else functional.attention
    return attend(*_parts(qkv, sizes), mask, scale, softcap=softcap, sinks=sinks)


def check_attention(where: str, attention: str) -> None:
    """Raise unless `attention` is a known kind."""
    checks.choice(where, "attention", attention, ATTENTIONS)


def check_heads(
    where: str, dim: int, n_head: int, n_kv_head: int, rope: bool, head_dim: int | None = None
) -> None:
    """Raise unless the heads divide the width and each other."""
    check_sizes(where, n_embd=dim, n_head=n_head, n_kv_head=n_kv_head)
    if head_dim is not None:
        check_sizes(where, head_dim=head_dim)
    elif dim % n_head:
        raise ValueError(f"{where}: n_head must divide n_embd; got n_embd={dim}, n_head={n_head}")
    if n_head % n_kv_head:
        raise ValueError(
            f"{where}: n_kv_head must divide n_head; got n_head={n_head}, n_kv_head={n_kv_head}"
        )
    width = dim // n_head if head_dim is None else head_dim
    if rope and width % 2:
        sizes = f"{dim} / {n_head} = {width}" if head_dim is None else f"head_dim={width}"
        raise ValueError(
            f"{where}: rotary positions need an even head size n_embd / n_head; got {sizes}"
        )
