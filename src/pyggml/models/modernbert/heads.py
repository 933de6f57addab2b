# SPDX-License-Identifier: MIT
"""ModernBERT with a head: for the hidden words, and for the class of a text."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import nn, ops
from ...io import GGUFFile, u32
from ...nn import functional, init
from ...nn.module import Parameter
from ...tensors import Tensor
from ..config import label_names
from ..files import LEFT_OUT
from ..masked import MaskedLM
from ..pooling import POOLINGS, RANK, TextClassifier, pool
from .config import ModernBERTConfig
from .model import ModernBERTBody, ModernBERTModel

__all__ = ["ModernBERTForMaskedLM", "ModernBERTForSequenceClassification"]


class _Head(nn.Module):
    """norm(gelu(dense(x)))."""

    def __init__(self, config: ModernBERTConfig) -> None:
        self.dense = nn.Linear(config.n_embd, config.n_embd, False, init.normal(0.02))
        self.norm = nn.LayerNorm(config.n_embd, config.eps, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the last matrix reads."""
        y: Tensor = self.norm(ops.gelu_erf(self.dense(x)))
        return y


class _Decoder(nn.Module):
    """The bias of a matrix that is the embedding table."""

    def __init__(self, config: ModernBERTConfig) -> None:
        self.bias = Parameter(init.constant(0.0)((config.vocab_size,)))


class ModernBERTForMaskedLM(ModernBERTModel, MaskedLM):
    """ModernBERT that predicts masked tokens; the embedding table is the last matrix.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Warner et al. 2024, arXiv:2412.13663.

    Example:
        >>> model = ModernBERTForMaskedLM(ModernBERTConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    # llama.cpp has no such head: the file is pyggml's own, under names like llama.cpp's.
    arch = "modern-bert-mlm"
    HF_CLASS = "ModernBertForMaskedLM"
    _prefix: ClassVar[str] = "model."

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__(config)
        self.model = ModernBERTBody(self.config)
        self.head = _Head(self.config)
        self.decoder = _Decoder(self.config)

    def _copies(self) -> dict[str, tuple[str, str]]:
        """Return the name of the tied matrix in Hugging Face's files."""
        return {"decoder.weight": ("model.embeddings.tok_embeddings.weight", LEFT_OUT)}

    def forward(  # type: ignore[override]
        self, ids: Tensor, *, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each token of the vocabulary; see `ModernBERT.forward`."""
        x = self.head(self._hidden(self.model, ids, attention_mask))
        return functional.linear(x, self.head_weight, self.decoder.bias)

    @property
    def head_weight(self) -> Tensor:
        """The matrix of the logits, which is the embedding table, (V, C)."""
        weight: Tensor = self.model.embeddings.tok_embeddings.weight
        return weight


class ModernBERTForSequenceClassification(ModernBERTModel, TextClassifier):
    """ModernBERT that classifies a text, by its first token or the mean of all.

    With `classes=1` it is a reranker: the ids are those of a question and a text, and the logit is
    the text's score.

    Args:
        config: sizes; `classes`, `labels` and `pooling` are of this head.

    Shape:
        ids (B, T) i32 -> (B, classes)

    Source: Warner et al. 2024, arXiv:2412.13663.

    Example:
        >>> config = ModernBERTConfig.preset("tiny", vocab_size=65)
        >>> ModernBERTForSequenceClassification(config)(tensor([[1, 2, 3]])).shape
        (1, 2)
    """

    arch = "modern-bert-classifier"
    HF_CLASS = "ModernBertForSequenceClassification"
    gguf_archs = ("modern-bert",)
    _prefix: ClassVar[str] = "model."

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__(config)
        self.model = ModernBERTBody(self.config)
        self.head = _Head(self.config)
        self.drop = nn.Dropout(self.config.dropout)
        drawn = init.normal(self.config.n_embd**-0.5)
        self.classifier = nn.Linear(self.config.n_embd, self.config.classes, True, drawn)

    @property
    def gguf_arch(self) -> str:
        """llama.cpp reads the head as that of a reranker."""
        return "modern-bert"

    @classmethod
    def reads(cls, file: GGUFFile) -> bool:
        """Return True for a file that has the head."""
        return "cls.output.weight" in file.tensors

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config, arch = self.config, self.gguf_arch
        # llama.cpp knows the number of classes from their names.
        return {
            **super().gguf_config(),
            f"{arch}.pooling_type": u32(RANK),
            f"{arch}.classifier.pooling_type": u32(1 + POOLINGS.index(config.pooling)),
            f"{arch}.classifier.activation": "gelu",
            f"{arch}.classifier.output_labels": label_names(config),
        }

    def forward(  # type: ignore[override]
        self, ids: Tensor, *, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each class; see `ModernBERT.forward`."""
        x = self._hidden(self.model, ids, attention_mask)
        y: Tensor = self.classifier(
            self.drop(self.head(pool(x, attention_mask, self.config.pooling)))
        )
        return y
