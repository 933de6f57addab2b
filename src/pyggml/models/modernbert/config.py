# SPDX-License-Identifier: MIT
"""Sizes of a ModernBERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ... import checks, nn
from ..bert.encoder_config import EncoderConfig

__all__ = ["ACTIVATIONS", "ModernBERTConfig"]

ACTIVATIONS = ("gelu", "silu")


@dataclass(frozen=True)
class ModernBERTConfig(EncoderConfig):
    """Sizes of a ModernBERT.

    Args:
        vocab_size: V, tokens.
        context: longest sequence.
        n_embd: C, width of the stream.
        n_layer: L, blocks.
        n_head: H, heads; must divide n_embd into even head sizes.
        n_ffn: width inside the feed-forward part; None is 1.5 * n_embd.
        window: in most layers a token sees window / 2 tokens to each side; even.
        window_pattern: every so many layers one sees all tokens, the first among them.
        rope_theta: base of the rotary wavelengths in layers that see all tokens.
        rope_theta_window: base in the others.
        eps: of the layer norms, which have no bias.
        activation: of the gate: "gelu" or "silu".
        pooling: how `embed` makes one vector of a sentence, and what a classifier reads: "mean" of
            the tokens, "cls", the first one, or "last".
        attention: "plain", "flash" or "auto"; see `nn.CausalSelfAttention`.
        dropout: while training, the share dropped of the embeddings, of what each half of a block
            adds, and before a classifier.
        classes: of `ModernBERTForSequenceClassification`; 1 is a reranker's score.
        labels: their names; None leaves them numbers.

    Raises:
        ValueError: a size is not a positive integer, the heads do not divide the width, labels
            are not as many as classes, or another field is out of range.

    Source: Warner et al. 2024, arXiv:2412.13663; the presets' sizes are their publishers'.

    Example:
        >>> ModernBERTConfig.preset("modernbert-base").n_layer
        22
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"context": 64, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_ffn": 96, "window": 16},
        "modernbert-base": {"n_embd": 768, "n_layer": 22, "n_head": 12, "n_ffn": 1152},
    }

    FFN: ClassVar[float] = 1.5
    ROTARY: ClassVar[bool] = True
    COUNTS: ClassVar[tuple[str, ...]] = ("window", "window_pattern")

    vocab_size: int = 50368
    context: int = 8192
    n_embd: int = 768
    n_layer: int = 22
    n_head: int = 12
    n_ffn: int | None = None
    window: int = 128
    window_pattern: int = 3
    rope_theta: float = 160000.0
    rope_theta_window: float = 10000.0
    eps: float = 1e-5
    activation: str = "gelu"
    pooling: str = "mean"
    attention: str = "auto"
    dropout: float = 0.0
    classes: int = 2
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        who = type(self).__name__
        if self.window % 2:
            raise ValueError(f"{who}: window must be even, half to each side; got {self.window}")
        self.layer_rope(0)
        self.layer_rope(1)
        checks.choice(who, "activation", self.activation, ACTIVATIONS)

    def sees_all(self, i: int) -> bool:
        """Return True if the tokens of layer i see all others."""
        return checks.whole("sees_all", "i", i, 0) % self.window_pattern == 0

    def layer_rope(self, i: int) -> nn.Rope:
        """Return the rotary positions of layer i."""
        return nn.Rope(base=self.rope_theta if self.sees_all(i) else self.rope_theta_window)

    def count_parameters(self) -> int:
        """Count the parameters of `ModernBERT`, without a head, without building it."""
        width = self.n_embd
        block = 4 * width * width + 3 * width * self.ffn + 2 * width
        # The first block has one norm, the embeddings and the end one each.
        return self.vocab_size * width + self.n_layer * block + width
