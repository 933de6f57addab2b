# SPDX-License-Identifier: MIT
"""Transformer layers with PyTorch's names, for models of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import checks, ops
from ..tensors import Tensor
from . import functional
from .functional.masking import hiding
from .layers import Dropout, LayerNorm, Linear, check_sizes
from .module import Module
from .multihead import MultiheadAttention, check_batch_first, check_stream

__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "gelu": functional.gelu,
    "silu": ops.silu,
}


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
        batch_first: bool = True,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        who = type(self).__name__
        check_batch_first(who, batch_first)
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
        self, attention: MultiheadAttention, x: Tensor, memory: Tensor, mask: Tensor | None
    ) -> Any:
        y, _ = attention(x, memory, memory, need_weights=False, attn_mask=mask)
        return self.dropout(y)

    def _scores(self, x: Tensor, memory: Tensor) -> tuple[int, ...]:
        return x.shape[0], self.self_attn.num_heads, x.shape[1], memory.shape[1]

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
        batch_first: True, as the batch is the first axis here.
        norm_first: norm what enters each part, not the sum behind it.
        bias: learn biases.

    Shape:
        src (B, T, C), src_mask (T, T) or (B, 1, T, T), src_key_padding_mask (B, T) -> (B, T, C)

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: the heads do not divide the width, or an argument is out of range.

    Source: torch.nn.TransformerEncoderLayer with batch_first=True.

    Example:
        >>> TransformerEncoderLayer(8, 2, 16)(ones((2, 3, 8))).shape
        (2, 3, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the stream behind this layer.

        Args:
            src: the stream.
            src_mask: what each token ignores; see `MultiheadAttention`.
            src_key_padding_mask: what all tokens ignore, as those that fill a row up.
            is_causal: hide what comes later, in addition to the masks.

        Raises:
            ShapeError: the shapes do not belong together.
        """
        who = type(self).__name__
        check_stream(who, "src", src, self.self_attn.embed_dim)
        mask = hiding(
            who,
            src,
            self._scores(src, src),
            src_mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=is_causal,
        )
        x = self._add(src, self.norm1, lambda x: self._attend(self.self_attn, x, x, mask))
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
        batch_first: True, as the batch is the first axis here.
        norm_first: norm what enters each part, not the sum behind it.
        bias: learn biases.

    Shape:
        tgt (B, T, C), memory (B, S, C), tgt_mask (T, T), memory_mask (T, S),
        tgt_key_padding_mask (B, T), memory_key_padding_mask (B, S) -> (B, T, C)

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: the heads do not divide the width, or an argument is out of range.

    Source: torch.nn.TransformerDecoderLayer with batch_first=True.

    Example:
        >>> layer = TransformerDecoderLayer(8, 2, 16)
        >>> layer(ones((2, 3, 8)), ones((2, 5, 8)), tgt_is_causal=True).shape
        (2, 3, 8)
    """

    _has_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the stream behind this layer.

        Args:
            tgt: the stream.
            memory: the encoder's output.
            tgt_mask: what each token ignores in the stream; see `MultiheadAttention`.
            memory_mask: what each token ignores in the memory.
            tgt_key_padding_mask: what all tokens ignore in the stream.
            memory_key_padding_mask: what all tokens ignore in the memory.
            tgt_is_causal: hide what comes later in the stream, in addition to the masks.
            memory_is_causal: hide what comes later in the memory, likewise.

        Raises:
            ShapeError: the shapes do not belong together.
        """
        who = type(self).__name__
        for name, given in (("tgt", tgt), ("memory", memory)):
            check_stream(who, name, given, self.self_attn.embed_dim)
        mask = hiding(
            who,
            tgt,
            self._scores(tgt, tgt),
            tgt_mask=tgt_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
        )
        of_memory = hiding(
            who,
            tgt,
            self._scores(tgt, memory),
            memory_mask=memory_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            memory_is_causal=memory_is_causal,
        )
        x = self._add(tgt, self.norm1, lambda x: self._attend(self.self_attn, x, x, mask))
        x = self._add(
            x, self.norm2, lambda x: self._attend(self.multihead_attn, x, memory, of_memory)
        )
        return self._add(x, self.norm3, self._feed_forward)
