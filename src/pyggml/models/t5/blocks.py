# SPDX-License-Identifier: MIT
"""The blocks of T5's encoder and decoder, under Hugging Face's names."""

from __future__ import annotations

from typing import Any

from ... import nn, ops
from ...graph import recompute
from ...nn import functional, init
from ...tensors import Tensor
from .config import T5Config

__all__ = ["Stack", "T5Cache", "linear"]


def linear(a: int, b: int, std: float) -> nn.Linear:
    """Return a layer without bias whose weights are drawn with this deviation."""
    return nn.Linear(a, b, False, init.normal(std))


class _Attention(nn.Module):
    """Queries of one stream, keys and values of the same or another; scores are not scaled."""

    def __init__(self, config: T5Config, bias: bool | None) -> None:
        """`bias`: whether relative positions see both sides; None has none."""
        inner, width = config.n_head * config.n_head_dim, config.n_embd
        # The published initialisation, which makes up for the scores' missing scale.
        self.q = linear(width, inner, (width * config.n_head_dim) ** -0.5)
        self.k = linear(width, inner, width**-0.5)
        self.v = linear(width, inner, width**-0.5)
        self.o = linear(inner, width, inner**-0.5)
        if bias is not None:
            self.relative_attention_bias = nn.RelativePositionBias(
                config.buckets, config.n_head, config.max_distance, bias, init.normal(width**-0.5)
            )
        self.n_head = config.n_head

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of a stream, (B, S, H, D) each."""
        batch, length, _ = x.shape
        shape = (batch, length, self.n_head, -1)
        return self.k(x).reshape(*shape), self.v(x).reshape(*shape)

    def attend(
        self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return what the queries of x gather."""
        batch, length, _ = x.shape
        q = self.q(x).reshape(batch, length, self.n_head, -1)
        y: Tensor = self.o(functional.attention(q, k, v, mask, 1.0, bias))
        return y


class _FeedForward(nn.Module):
    """Widen, activate, narrow, under Hugging Face's names."""

    def __init__(self, config: T5Config) -> None:
        width, inner = config.n_embd, config.n_ffn
        if config.gated:
            self.wi_0 = linear(width, inner, width**-0.5)
            self.wi_1 = linear(width, inner, width**-0.5)
        else:
            self.wi = linear(width, inner, width**-0.5)
        self.wo = linear(inner, width, inner**-0.5)
        self.drop = nn.Dropout(config.dropout)
        self.gated = config.gated

    def forward(self, x: Tensor) -> Tensor:
        """Return the narrowed stream."""
        if self.gated:
            inner = recompute(ops.geglu(self.wi_0(x), self.wi_1(x)))
        else:
            inner = recompute(ops.relu(self.wi(x)))
        y: Tensor = self.wo(self.drop(inner))
        return y


class _Part(nn.Module):
    """A norm and what follows it; its output joins the stream."""

    def __init__(self, config: T5Config, name: str, part: nn.Module) -> None:
        setattr(self, name, part)
        self.layer_norm = nn.RMSNorm(config.n_embd, config.eps)
        self.drop = nn.Dropout(config.dropout)


class _Block(nn.Module):
    """Self-attention, in the decoder attention to the encoder, and the feed-forward part."""

    def __init__(self, config: T5Config, decoder: bool, first: bool) -> None:
        own = _Attention(config, (not decoder) if first else None)
        self.layer = [_Part(config, "SelfAttention", own)]
        if decoder:
            self.layer.append(_Part(config, "EncDecAttention", _Attention(config, None)))
        self.layer.append(_Part(config, "DenseReluDense", _FeedForward(config)))

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        encoded: Any = None,
        encoded_mask: Tensor | None = None,
        cache: nn.LayerCache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the stream after the block.

        `encoded` is the encoder's output, or keys and values of it.
        """
        own: Any = self.layer[0]
        seen = own.layer_norm(x)
        k, v = own.SelfAttention.keys(seen)
        if cache is not None and positions is not None:
            k, v = cache.update(k, v, positions, bias.shape[-1])
        x = x + own.drop(own.SelfAttention.attend(seen, k, v, mask, bias))
        if len(self.layer) == 3:
            cross: Any = self.layer[1]
            attention = cross.EncDecAttention
            k, v = encoded if isinstance(encoded, tuple) else attention.keys(encoded)
            x = x + cross.drop(attention.attend(cross.layer_norm(x), k, v, encoded_mask, None))
        last: Any = self.layer[-1]
        y: Tensor = x + last.drop(last.DenseReluDense(last.layer_norm(x)))
        return y


class Stack(nn.Module):
    """Blocks and their last norm: the encoder, or the decoder."""

    def __init__(self, config: T5Config, decoder: bool) -> None:
        count = config.decoder_layers if decoder else config.n_layer
        self.block = [_Block(config, decoder, i == 0) for i in range(count)]
        self.final_layer_norm = nn.RMSNorm(config.n_embd, config.eps)
        self.drop = nn.Dropout(config.dropout)

    def bias(self, positions: Tensor | int) -> Tensor:
        """Return what relative positions add to the scores of every block."""
        first: Any = self.block[0].layer[0]
        y: Tensor = first.SelfAttention.relative_attention_bias(positions)
        return y


class T5Cache:
    """Keys and values of a decoder's own tokens, and those of the encoder's output.

    Made by `T5.new_cache`.
    """

    def __init__(self, own: nn.KVCache, cross: list[tuple[Tensor, Tensor]]) -> None:
        self.own = own
        self.cross = cross
