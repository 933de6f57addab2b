# SPDX-License-Identifier: MIT
"""Sizes of a T5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ... import checks, nn
from ...nn.layers import check_eps, check_sizes
from ..config import ModelConfig

__all__ = ["T5Config"]


@dataclass(frozen=True)
class T5Config(ModelConfig):
    """Sizes of a T5.

    Args:
        vocab_size: V, tokens.
        context: longest input, and longest output; T5 itself has no bound.
        n_embd: C, width of the stream.
        n_layer: blocks of the encoder.
        n_decoder: blocks of the decoder; None is n_layer.
        n_head: H, heads.
        n_head_dim: width of a head; need not be n_embd / n_head.
        n_ffn: width inside the feed-forward part.
        gated: gate it by a GELU, as T5 1.1 and Flan-T5 do; else ReLU.
        buckets: of the relative positions.
        max_distance: from here on all is one bucket.
        eps: of the RMS norms.
        tie: the head is the embedding table, and the stream scaled by 1 / sqrt(n_embd) before.
        start_id: first input of the decoder.
        eos_id: ends what `generate` writes.
        dropout: while training, the share dropped of the embeddings, inside the feed-forward
            part, and of what each part of a block adds.

    Raises:
        ValueError: a size is not a positive integer, or another field is out of range.

    Source: Raffel et al. 2019, arXiv:1910.10683; the presets' sizes are Google's.

    Example:
        >>> T5Config.preset("t5-small").n_ffn
        2048
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {
            "context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_head_dim": 16,
            "n_ffn": 128, "dropout": 0.0,
        },
        "t5-small": {"n_embd": 512, "n_layer": 6, "n_head": 8, "n_ffn": 2048},
        "t5-base": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_ffn": 3072},
        "t5-large": {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_ffn": 4096},
        "t5-3b": {
            "n_embd": 1024, "n_layer": 24, "n_head": 32, "n_head_dim": 128, "n_ffn": 16384,
        },
        "flan-t5-small": {
            "n_embd": 512, "n_layer": 8, "n_head": 6, "n_ffn": 1024, "gated": True, "tie": False,
        },
        "flan-t5-base": {
            "n_embd": 768, "n_layer": 12, "n_head": 12, "n_ffn": 2048, "gated": True, "tie": False,
        },
        "flan-t5-large": {
            "n_embd": 1024, "n_layer": 24, "n_head": 16, "n_ffn": 2816, "gated": True,
            "tie": False,
        },
        "flan-t5-xl": {
            "n_embd": 2048, "n_layer": 24, "n_head": 32, "n_ffn": 5120, "gated": True,
            "tie": False,
        },
    }  # fmt: skip

    vocab_size: int = 32128
    context: int = 512
    n_embd: int = 512
    n_layer: int = 6
    n_decoder: int | None = None
    n_head: int = 8
    n_head_dim: int = 64
    n_ffn: int = 2048
    gated: bool = False
    buckets: int = 32
    max_distance: int = 128
    eps: float = 1e-6
    tie: bool = True
    start_id: int = 0
    eos_id: int = 1
    dropout: float = 0.1

    def __post_init__(self) -> None:
        who = "T5Config"
        self.check_kinds()
        if self.n_decoder is None:
            object.__setattr__(self, "n_decoder", self.n_layer)
        check_sizes(
            who,
            vocab_size=self.vocab_size,
            context=self.context,
            n_embd=self.n_embd,
            n_layer=self.n_layer,
            n_decoder=self.decoder_layers,
            n_head=self.n_head,
            n_head_dim=self.n_head_dim,
            n_ffn=self.n_ffn,
        )
        check_eps(who, self.eps)
        nn.Dropout(self.dropout)
        for both in (True, False):
            nn.relative_buckets([0], [0], self.buckets, self.max_distance, both)
        for name in ("start_id", "eos_id"):
            checks.whole(who, name, getattr(self, name), 0, self.vocab_size - 1)

    @property
    def decoder_layers(self) -> int:
        """Blocks of the decoder."""
        return self.n_layer if self.n_decoder is None else self.n_decoder

    def count_parameters(self) -> int:
        """Count a model's parameters without building it."""
        width, inner = self.n_embd, self.n_head * self.n_head_dim
        attention = 4 * width * inner + width
        feed_forward = (3 if self.gated else 2) * width * self.n_ffn + width
        encoder = self.n_layer * (attention + feed_forward)
        decoder = self.decoder_layers * (2 * attention + feed_forward)
        distances = 2 * self.buckets * self.n_head
        tables = self.vocab_size * width * (1 if self.tie else 2)
        return tables + encoder + decoder + distances + 2 * width

    @property
    def ffn(self) -> int:
        """Width inside the feed-forward part."""
        return self.n_ffn
