# SPDX-License-Identifier: MIT
"""Sizes of a BERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .encoder_config import EncoderConfig

__all__ = ["BERTConfig"]


@dataclass(frozen=True)
class BERTConfig(EncoderConfig):
    """Sizes of a BERT.

    Args:
        vocab_size: V, tokens.
        context: longest sequence.
        n_embd: C, width of the stream.
        n_layer: L, blocks.
        n_head: H, heads; must divide n_embd.
        n_ffn: width inside the feed-forward part; None is 4 * n_embd.
        types: kinds of segments, such as question and answer.
        eps: of the layer norms.
        pooling: how `embed` makes one vector of a sentence: "mean" of its tokens, "cls", the
            first one, or "last".
        attention: "plain", "flash" or "auto"; see `nn.CausalSelfAttention`.
        dropout: while training, the share dropped of the embeddings, of what each half of a block
            adds, and before a classifier.
        classes: of `BERTForSequenceClassification`, where 1 is a reranker's score, and of
            `BERTForTokenClassification`.
        labels: their names; None leaves them numbers.
        pooler: the classifier reads a layer over the first token; False is the token itself, as in
            the files of llama.cpp's converter, which leaves BERT's layer out.

    Raises:
        ValueError: a size is not a positive integer, the heads do not divide the width, labels
            are not as many as classes, or another field is out of range.

    Source: Devlin et al. 2018, arXiv:1810.04805; the presets' sizes are their publishers'.

    Example:
        >>> BERTConfig.preset("bert-base-uncased").n_layer
        12
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "dropout": 0.0},
        "bert-tiny": {"n_embd": 128, "n_layer": 2, "n_head": 2},
        "bert-mini": {"n_embd": 256, "n_layer": 4, "n_head": 4},
        "bert-small": {"n_embd": 512, "n_layer": 4, "n_head": 8},
        "bert-medium": {"n_embd": 512, "n_layer": 8, "n_head": 8},
        "bert-base-uncased": {"n_embd": 768, "n_layer": 12, "n_head": 12},
        "bert-base-cased": {"vocab_size": 28996, "n_embd": 768, "n_layer": 12, "n_head": 12},
        "bert-large-uncased": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
        "all-minilm-l6-v2": {"n_embd": 384, "n_layer": 6, "n_head": 12},
        "all-minilm-l12-v2": {"n_embd": 384, "n_layer": 12, "n_head": 12},
        "bge-small-en-v1.5": {"n_embd": 384, "n_layer": 12, "n_head": 12, "pooling": "cls"},
    }

    COUNTS: ClassVar[tuple[str, ...]] = ("types",)

    vocab_size: int = 30522
    context: int = 512
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_ffn: int | None = None
    types: int = 2
    eps: float = 1e-12
    pooling: str = "mean"
    attention: str = "auto"
    dropout: float = 0.1
    classes: int = 2
    labels: tuple[str, ...] | None = None
    pooler: bool = True

    def count_parameters(self) -> int:
        """Count the parameters of `BERT`, without a head, without building it."""
        width = self.n_embd
        tables = (self.vocab_size + self.context + self.types) * width + 2 * width
        block = 4 * (width * width + width) + 2 * width * self.ffn + self.ffn + width + 4 * width
        return tables + self.n_layer * block
