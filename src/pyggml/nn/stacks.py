# SPDX-License-Identifier: MIT
"""Stacks of transformer layers, under PyTorch's names."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from .. import checks
from ..tensors import Tensor
from .containers import ModuleList
from .functional.masking import hiding
from .module import Module
from .multihead import check_stream
from .transformer import TransformerDecoderLayer, TransformerEncoderLayer

__all__ = ["TransformerDecoder", "TransformerEncoder"]


class _Stack(Module):
    """Copies of a layer, one behind another, and a norm."""

    def __init__(self, layer: Module, kind: type, num_layers: int, norm: Module | None) -> None:
        who = type(self).__name__
        name = "encoder_layer" if kind is TransformerEncoderLayer else "decoder_layer"
        checks.instance(who, name, layer, kind, f"give an nn.{kind.__name__}")
        count = checks.whole(who, "num_layers", num_layers, 1)
        if norm is not None:
            checks.instance(who, "norm", norm, Module, "such as nn.LayerNorm(d_model)")
        self.layers = ModuleList(deepcopy(layer) for _ in range(count))
        self.norm = norm

    def _scores(self, **streams: Tensor) -> tuple[int, ...]:
        """Return the shape of a stream's scores of the second stream, or of itself."""
        attention = self.layers[0].self_attn
        for name, x in streams.items():
            check_stream(type(self).__name__, name, x, attention.embed_dim)
        first, *_, last = *streams.values(), *streams.values()
        return first.shape[0], attention.num_heads, first.shape[1], last.shape[1]


class TransformerEncoder(_Stack):
    """Encoder layers one behind another, each a copy of the same one.

    Args:
        encoder_layer: the layer that is copied.
        num_layers: how many.
        norm: a last norm, or None.

    Shape:
        src (B, T, C), mask (T, T) or (B, 1, T, T), src_key_padding_mask (B, T) -> (B, T, C)

    Source: torch.nn.TransformerEncoder with batch_first=True.

    Example:
        >>> TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)(ones((2, 3, 8))).shape
        (2, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
    ) -> None:
        super().__init__(encoder_layer, TransformerEncoderLayer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Return the stream behind the last layer; see `TransformerEncoderLayer`."""
        hidden = hiding(
            type(self).__name__,
            src,
            self._scores(src=src),
            mask=mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=False if is_causal is None else is_causal,
        )
        for layer in self.layers:
            src = layer(src, hidden)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """Decoder layers one behind another, each a copy of the same one.

    Args:
        decoder_layer: the layer that is copied.
        num_layers: how many.
        norm: a last norm, or None.

    Shape:
        tgt (B, T, C), memory (B, S, C), tgt_mask (T, T), memory_mask (T, S),
        tgt_key_padding_mask (B, T), memory_key_padding_mask (B, S) -> (B, T, C)

    Source: torch.nn.TransformerDecoder with batch_first=True.

    Example:
        >>> decoder = TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
        >>> decoder(ones((2, 3, 8)), ones((2, 5, 8))).shape
        (2, 3, 8)
    """

    def __init__(
        self,
        decoder_layer: TransformerDecoderLayer,
        num_layers: int,
        norm: Module | None = None,
    ) -> None:
        super().__init__(decoder_layer, TransformerDecoderLayer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the stream behind the last layer; see `TransformerDecoderLayer`."""
        who = type(self).__name__
        hidden = hiding(
            who,
            tgt,
            self._scores(tgt=tgt),
            tgt_mask=tgt_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            tgt_is_causal=False if tgt_is_causal is None else tgt_is_causal,
        )
        of_memory = hiding(
            who,
            tgt,
            self._scores(tgt=tgt, memory=memory),
            memory_mask=memory_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            memory_is_causal=memory_is_causal,
        )
        for layer in self.layers:
            tgt = layer(tgt, memory, hidden, of_memory)
        return tgt if self.norm is None else self.norm(tgt)
