# SPDX-License-Identifier: MIT
"""Attention and transformer layers with PyTorch's names, for models of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import checks, ops
from ..errors import ShapeError
from ..ops.operands import need_float
from ..tensors import Tensor, tensor
from . import functional, init
from .functional.masking import addend
from .layers import Dropout, LayerNorm, Linear, check_sizes
from .module import Module, Parameter

__all__ = ["MultiheadAttention", "TransformerDecoderLayer", "TransformerEncoderLayer"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "gelu": functional.gelu,
    "silu": ops.silu,
}


class MultiheadAttention(Module):
    """Attention of a sequence to another one, or to itself, with several heads.

    Sequences come with the batch first. A mask is an f32 tensor that is added to the scores: 0
    where seen, -inf where hidden; `nn.causal_mask` and `nn.padding_mask` make such ones.

    Args:
        embed_dim: width of the query and of the output.
        num_heads: heads; must divide embed_dim.
        dropout: probability that a weight is dropped while training.
        bias: learn biases.
        batch_first: True, as the batch is the first axis here.

    Shape:
        query (B, T, C), key and value (B, S, C), attn_mask (T, S) or (B, 1, T, S)
        -> (B, T, C), and weights (B, T, S) or None

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: the heads do not divide the width, or a probability is out of range.

    Source: torch.nn.MultiheadAttention with batch_first=True; Vaswani et al. 2017.

    Example:
        >>> x = ones((2, 3, 8))
        >>> y, weights = MultiheadAttention(8, 2)(x, x, x)
        >>> y.shape, weights.shape
        ((2, 3, 8), (2, 3, 3))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = True,
    ) -> None:
        who = "MultiheadAttention"
        _check_batch_first(who, batch_first)
        embed_dim, self.num_heads = check_sizes(who, embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ValueError(
                f"{who}: num_heads must divide embed_dim; got {num_heads} and {embed_dim}"
            )
        self.embed_dim = embed_dim
        learns_bias = checks.flag(who, "bias", bias)
        self.dropout = Dropout(dropout)
        bound = math.sqrt(6.0 / (4 * embed_dim))  # Xavier's, of the three matrices as one
        self.in_proj_weight = Parameter(init.uniform(-bound, bound)((3 * embed_dim, embed_dim)))
        self.in_proj_bias = Parameter(np.zeros(3 * embed_dim, np.float32)) if learns_bias else None
        self.out_proj = Linear(embed_dim, embed_dim, learns_bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias.copy_(np.zeros(embed_dim, np.float32))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *,
        need_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return what the queries gather, and the mean weights of the heads.

        Args:
            query: what asks.
            key: what is compared with it.
            value: what is gathered.
            attn_mask: added to the scores; of a comparison or NumPy booleans, true is hidden.
            need_weights: return the weights; without them the memory of their mean is saved.
            is_causal: hide what comes later; instead of a mask.

        Raises:
            ShapeError: the shapes do not belong together.
            ValueError: a mask and is_causal are both given.
        """
        who = "MultiheadAttention"
        named = {"query": query, "key": key, "value": value}
        for name, x in named.items():
            check_stream(who, name, x, self.embed_dim)
        batch, length, _ = query.shape
        columns = key.shape[1]
        if key.shape != value.shape or key.shape[0] != batch:
            raise ShapeError(
                f"{who}: key and value must have one shape, and the batch of the query; got "
                f"{key.shape}, {value.shape} and {query.shape}"
            )
        attn_mask = hiding(who, "attn_mask", attn_mask, query, key, self.num_heads)
        if checks.flag(who, "is_causal", is_causal):
            if attn_mask is not None:
                raise ValueError(f"{who}: attn_mask must be None with is_causal; give one")
            hidden = np.triu(np.full((length, columns), -np.inf, np.float32), 1)
            attn_mask = tensor(hidden, "f32", query.device)
        q, k, v = (self._projected(i, x) for i, x in enumerate((query, key, value)))
        scale = (self.embed_dim // self.num_heads) ** -0.5
        weights = ops.soft_max(ops.mul_mat(k, q), attn_mask, scale)  # (B, H, T, S)
        dropped = self.dropout(weights)
        gathered = ops.mul_mat(ops.cont(ops.transpose(v)), dropped)  # (B, H, T, D)
        y = gathered.transpose(1, 2).reshape(batch, length, self.embed_dim)
        y = self.out_proj(y)
        if not checks.flag(who, "need_weights", need_weights):
            return y, None
        return y, dropped.mean(dim=1)

    def _projected(self, part: int, x: Tensor) -> Tensor:
        """Return the queries, keys or values of all heads, (B, H, T, D)."""
        width, heads = self.embed_dim, self.num_heads
        rows = slice(part * width, (part + 1) * width)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        y = ops.linear(x, self.in_proj_weight[rows], bias)
        return y.reshape(x.shape[0], x.shape[1], heads, width // heads).transpose(1, 2)


def check_stream(who: str, name: str, x: Any, width: int) -> None:
    """Raise unless x is an f32 tensor (B, T, width).

    Args:
        who: the layer.
        name: the argument.
        x: the argument.
        width: of the stream.
    """
    if need_float(who, name, x).ndim != 3 or x.shape[2] != width:
        raise ShapeError(f"{who}: {name} must be (B, T, {width}); got {name}.shape={x.shape}")


def hiding(who: str, name: str, mask: Any, x: Tensor, memory: Tensor, heads: int) -> Tensor | None:
    """Return what a mask adds to the scores of x and memory, or None.

    Args:
        who: the layer.
        name: the argument.
        mask: the argument.
        x: the stream (B, T, C).
        memory: what it attends to, (B, S, C).
        heads: how many.

    Raises:
        ShapeError: the mask does not fit.
    """
    if mask is None:
        return None
    scores = (x.shape[0], heads, x.shape[1], memory.shape[1])
    return addend(who, name, mask, x, scores, hidden=True)


def _check_batch_first(who: str, given: Any) -> None:
    """Raise if the batch is to be the second axis."""
    if not checks.flag(who, "batch_first", given):
        raise ValueError(
            f"{who}: batch_first must be True; got False: give (B, T, C), such as"
            " x.transpose(0, 1) of (T, B, C)"
        )


class _Layer(Module):
    """The parts that both layers have, and how they are joined."""

    _has_memory = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        *,
        batch_first: bool = True,
    ) -> None:
        who = type(self).__name__
        _check_batch_first(who, batch_first)
        self.norm_first = checks.flag(who, "norm_first", norm_first)
        self.activation = checks.choice(who, "activation", activation, tuple(_ACTIVATIONS))
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias)
        (width,) = check_sizes(who, dim_feedforward=dim_feedforward)
        self.linear1 = Linear(d_model, width, bias)
        self.linear2 = Linear(width, d_model, bias)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        if self._has_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias)
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout = Dropout(dropout)

    def _feed_forward(self, x: Tensor) -> Any:
        inner = self.dropout(_ACTIVATIONS[self.activation](self.linear1(x)))
        return self.dropout(self.linear2(inner))

    def _attend(
        self, attention: MultiheadAttention, x: Tensor, memory: Tensor, mask: Tensor | None,
        is_causal: bool,
    ) -> Any:  # fmt: skip
        y, _ = attention(x, memory, memory, mask, need_weights=False, is_causal=is_causal)
        return self.dropout(y)

    def _add(self, x: Tensor, norm: Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x with a part's output added, normed before or after."""
        added: Tensor = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return added


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each added to the stream and normed.

    Args:
        d_model: width of the stream.
        nhead: heads; must divide d_model.
        dim_feedforward: width inside of the feed-forward network.
        dropout: probability that an element is dropped while training.
        activation: "relu", "gelu" or "silu".
        layer_norm_eps: eps of the norms.
        norm_first: norm what enters each part, not the sum behind it.
        bias: learn biases.

    Shape:
        src (B, T, C), src_mask (T, T) or (B, 1, T, T) -> (B, T, C)

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: the heads do not divide the width, or an argument is out of range.

    Source: torch.nn.TransformerEncoderLayer with batch_first=True.

    Example:
        >>> TransformerEncoderLayer(8, 2, 16)(ones((2, 3, 8))).shape
        (2, 3, 8)
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, *, is_causal: bool = False
    ) -> Tensor:
        """Return the stream behind this layer.

        Args:
            src: the stream.
            src_mask: added to the scores.
            is_causal: hide what comes later; instead of a mask.

        Raises:
            ShapeError: the shapes do not belong together.
        """
        who = type(self).__name__
        check_stream(who, "src", src, self.self_attn.embed_dim)
        src_mask = hiding(who, "src_mask", src_mask, src, src, self.self_attn.num_heads)
        x = self._add(
            src, self.norm1, lambda x: self._attend(self.self_attn, x, x, src_mask, is_causal)
        )
        return self._add(x, self.norm2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's output, and a feed-forward network.

    Args:
        d_model: width of the stream.
        nhead: heads; must divide d_model.
        dim_feedforward: width inside of the feed-forward network.
        dropout: probability that an element is dropped while training.
        activation: "relu", "gelu" or "silu".
        layer_norm_eps: eps of the norms.
        norm_first: norm what enters each part, not the sum behind it.
        bias: learn biases.

    Shape:
        tgt (B, T, C), memory (B, S, C), tgt_mask (T, T), memory_mask (T, S) -> (B, T, C)

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: the heads do not divide the width, or an argument is out of range.

    Source: torch.nn.TransformerDecoderLayer with batch_first=True.

    Example:
        >>> layer = TransformerDecoderLayer(8, 2, 16)
        >>> layer(ones((2, 3, 8)), ones((2, 5, 8)), is_causal=True).shape
        (2, 3, 8)
    """

    _has_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the stream behind this layer.

        Args:
            tgt: the stream.
            memory: the encoder's output.
            tgt_mask: added to the scores among the stream.
            memory_mask: added to the scores of the memory.
            is_causal: hide what comes later in the stream; instead of tgt_mask.

        Raises:
            ShapeError: the shapes do not belong together.
        """
        who, heads = type(self).__name__, self.self_attn.num_heads
        for name, given in (("tgt", tgt), ("memory", memory)):
            check_stream(who, name, given, self.self_attn.embed_dim)
        tgt_mask = hiding(who, "tgt_mask", tgt_mask, tgt, tgt, heads)
        memory_mask = hiding(who, "memory_mask", memory_mask, tgt, memory, heads)
        x = self._add(
            tgt, self.norm1, lambda x: self._attend(self.self_attn, x, x, tgt_mask, is_causal)
        )
        x = self._add(
            x,
            self.norm2,
            lambda x: self._attend(self.multihead_attn, x, memory, memory_mask, False),
        )
        return self._add(x, self.norm3, self._feed_forward)
