# SPDX-License-Identifier: MIT
"""BERT with a head: for the hidden words, and for the class of a text."""

from __future__ import annotations

from typing import ClassVar

from ... import nn, ops
from ...errors import ShapeError
from ...io import GGUFFile, u32
from ...nn import functional
from ...nn.mode import in_mode
from ...nn.module import Parameter
from ...tensors import Tensor
from ..files import LEFT_OUT
from ..targets import check_targets
from .model import BERTBody, BERTConfig, BERTModel, linear

__all__ = ["BERTForMaskedLM", "BERTForSequenceClassification"]


class _Transform(nn.Module):
    def __init__(self, config: BERTConfig) -> None:
        self.dense = linear(config.n_embd, config.n_embd)
        self.LayerNorm = nn.LayerNorm(config.n_embd, config.eps)


class _Predictions(nn.Module):
    """table @ LayerNorm(gelu(dense(x))) + bias, the table being the embedding."""

    def __init__(self, config: BERTConfig) -> None:
        self.transform = _Transform(config)
        self.bias = Parameter(nn.init.constant(0.0)((config.vocab_size,)))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Return a logit for each token of the vocabulary."""
        seen = self.transform.LayerNorm(ops.gelu_erf(self.transform.dense(x)))
        return functional.linear(seen, table, self.bias)


class _Head(nn.Module):
    def __init__(self, config: BERTConfig) -> None:
        self.predictions = _Predictions(config)


class BERTForMaskedLM(BERTModel):
    """BERT that predicts masked tokens; the embedding table is the last matrix.

    `loss` takes the batches of `data.AugmentedDataset` with `data.MaskTokens`.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Devlin et al. 2018, arXiv:1810.04805.

    Example:
        >>> model = BERTForMaskedLM(BERTConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    # llama.cpp has no such head: the file is pyggml's own, under names like llama.cpp's.
    arch = "bert-mlm"
    HF_CLASSES = ("BertForMaskedLM", "BertForPreTraining")
    _prefix: ClassVar[str] = "bert."

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        self.bert = BERTBody(self.config)
        self.cls = _Head(self.config)

    def _copies(self) -> dict[str, tuple[str, str]]:
        """Return the names of the decoder in Hugging Face's files."""
        decoder = "cls.predictions.decoder"
        return {
            f"{decoder}.weight": ("bert.embeddings.word_embeddings.weight", LEFT_OUT),
            f"{decoder}.bias": ("cls.predictions.bias", LEFT_OUT),
        }

    @property
    def target_classes(self) -> int:
        """The vocabulary's tokens."""
        return int(self.config.vocab_size)

    def forward(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each token of the vocabulary; see `BERT.forward`."""
        x = self._hidden(self.bert, ids, attention_mask, types)
        y: Tensor = self.cls.predictions(x, self.bert.embeddings.word_embeddings.weight)
        return y

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        reduction: str = "mean",
        *,
        attention_mask: Tensor | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """Return the cross-entropy of the hidden tokens.

        Args:
            ids: tokens, some of them hidden.
            targets: what is hidden; -100 where nothing is.
            reduction: "mean", "sum" or "none".
            attention_mask: see `BERT.forward`.
            types: see `BERT.forward`.

        Shape:
            ids, targets, attention_mask, types (B, T) i32 -> () or, with "none", (B, T)

        Raises:
            ShapeError: the shapes differ, or a target is not in the vocabulary.
        """
        check_targets("BERTForMaskedLM.loss", targets, self.target_classes)
        if ids.shape != targets.shape:
            raise ShapeError(
                "BERTForMaskedLM.loss: ids and targets must have one shape; "
                f"got {ids.shape} and {targets.shape}"
            )
        logits = self(ids, attention_mask=attention_mask, types=types)
        return ops.cross_entropy(logits, targets, reduction=reduction)


class BERTForSequenceClassification(BERTModel):
    """BERT that classifies a text, by a layer over its first token.

    Args:
        config: sizes; `classes` and `labels` are of this head.

    Shape:
        ids (B, T) i32 -> (B, classes)

    Source: Devlin et al. 2018, arXiv:1810.04805.

    Example:
        >>> model = BERTForSequenceClassification(BERTConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 2)
    """

    arch = "bert-classifier"
    HF_CLASSES = ("BertForSequenceClassification",)
    gguf_archs = ("bert",)
    _prefix: ClassVar[str] = "bert."

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        self.bert = BERTBody(self.config, pooler=True)
        self.drop = nn.Dropout(self.config.dropout)
        self.classifier = linear(self.config.n_embd, self.config.classes)

    @property
    def target_classes(self) -> int:
        """The classes of a text."""
        return int(self.config.classes)

    @property
    def gguf_arch(self) -> str:
        """llama.cpp reads the head as that of a reranker."""
        return "bert"

    @classmethod
    def reads(cls, file: GGUFFile) -> bool:
        """Return True for a file that has the head."""
        return "cls.output.weight" in file.tensors

    def gguf_config(self) -> dict[str, object]:
        """Return the hyper-parameters under llama.cpp's keys."""
        # llama.cpp knows the number of classes from their names.
        labels = self.config.labels or [f"LABEL_{i}" for i in range(self.config.classes)]
        rank = u32(4)  # llama.cpp's LLAMA_POOLING_TYPE_RANK: the head's own numbers
        return {
            **super().gguf_config(),
            "bert.pooling_type": rank,
            "bert.classifier.output_labels": list(labels),
        }

    def forward(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each class; see `BERT.forward`."""
        x = self._hidden(self.bert, ids, attention_mask, types)
        pooled = self.bert.pooler(x)
        y: Tensor = self.classifier(self.drop(pooled))
        return y

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        reduction: str = "mean",
        *,
        attention_mask: Tensor | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """Return the cross-entropy of the classes.

        Args:
            ids: tokens.
            targets: class of each text; -100 is not counted.
            reduction: "mean", "sum" or "none".
            attention_mask: see `BERT.forward`.
            types: see `BERT.forward`.

        Shape:
            ids, attention_mask, types (B, T) i32, targets (B,) i32 -> () or, with "none", (B,)

        Raises:
            ShapeError: targets are not (B,), or one is no class.
        """
        check_targets("BERTForSequenceClassification.loss", targets, self.target_classes)
        logits = self(ids, attention_mask=attention_mask, types=types)
        return ops.cross_entropy(logits, targets, reduction=reduction)

    def predict_proba(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return the probability of each class, with nothing dropped.

        Args:
            ids: tokens.
            attention_mask: see `BERT.forward`.
            types: see `BERT.forward`.

        Shape:
            ids (B, T) i32 -> (B, classes), rows that sum to 1
        """
        with in_mode(self, training=False):
            return ops.soft_max(self(ids, attention_mask=attention_mask, types=types))
