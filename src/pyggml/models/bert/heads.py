# SPDX-License-Identifier: MIT
"""BERT with a head: for the hidden words, for the class of a text, for that of each token."""

from __future__ import annotations

from typing import ClassVar

from ... import nn, ops
from ...io import GGUFFile, u32
from ...nn import functional
from ...nn.module import Parameter
from ...tensors import Tensor
from ..config import label_names
from ..files import LEFT_OUT
from ..masked import MaskedLM
from ..pooling import RANK, TextClassifier
from ..token_classifier import TokenClassifier
from .model import BERTBody, BERTConfig, BERTModel, linear

__all__ = ["BERTForMaskedLM", "BERTForSequenceClassification", "BERTForTokenClassification"]


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


class BERTForMaskedLM(BERTModel, MaskedLM):
    """BERT that predicts masked tokens; the embedding table is the last matrix.

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

    def forward(  # type: ignore[override]
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each token of the vocabulary; see `BERT.forward`."""
        x = self._hidden(self.bert, ids, attention_mask, types)
        y: Tensor = self.cls.predictions(x, self.head_weight)
        return y

    @property
    def head_weight(self) -> Tensor:
        """The matrix of the logits, which is the embedding table, (V, C)."""
        weight: Tensor = self.bert.embeddings.word_embeddings.weight
        return weight


class BERTForSequenceClassification(BERTModel, TextClassifier):
    """BERT that classifies a text, by a layer over its first token.

    A RoBERTa is one, too: `load_state_dict` knows its names. With `classes=1` it is a reranker: the
    ids are those of a question and a text, and the logit is the text's score.

    Args:
        config: sizes; `classes`, `labels` and `pooler` are of this head.

    Shape:
        ids (B, T) i32 -> (B, classes)

    Source: Devlin et al. 2018, arXiv:1810.04805; Nogueira and Cho 2019, arXiv:1901.04085; RoBERTa:
        arXiv:1907.11692.

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
        self.bert = BERTBody(self.config, pooler=self.config.pooler)
        self.drop = nn.Dropout(self.config.dropout)
        self.classifier = linear(self.config.n_embd, self.config.classes)

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
        return {
            **super().gguf_config(),
            "bert.pooling_type": u32(RANK),
            "bert.classifier.output_labels": label_names(self.config),
        }

    def forward(  # type: ignore[override]
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each class; see `BERT.forward`."""
        x = self._hidden(self.bert, ids, attention_mask, types)
        pooled = self.bert.pooler(x) if self.config.pooler else x[:, 0]
        y: Tensor = self.classifier(self.drop(pooled))
        return y


class BERTForTokenClassification(BERTModel, TokenClassifier):
    """BERT that gives each token a class: names of persons, parts of speech, and the like.

    A RoBERTa is one, too: `load_state_dict` knows its names.

    Args:
        config: sizes; `classes` and `labels` are of this head.

    Shape:
        ids (B, T) i32 -> (B, T, classes)

    Raises:
        ValueError: fewer than two classes.

    Source: Devlin et al. 2018, arXiv:1810.04805, section 5.3.

    Example:
        >>> config = BERTConfig.preset("tiny", vocab_size=65, classes=3)
        >>> BERTForTokenClassification(config)(tensor([[1, 2, 3]])).shape
        (1, 3, 3)
    """

    # llama.cpp has no such head: the file is pyggml's own, under names like llama.cpp's.
    arch = "bert-token-classifier"
    HF_CLASSES = ("BertForTokenClassification",)
    _prefix: ClassVar[str] = "bert."
    GGUF_NAMES: ClassVar[dict[str, str]] = {**BERTModel.GGUF_NAMES, "classifier": "cls.tokens"}

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        if self.config.classes < 2:
            raise ValueError(
                "BERTForTokenClassification: classes must be at least 2; got "
                f"{self.config.classes}: give as many as there are labels"
            )
        self.bert = BERTBody(self.config)
        self.drop = nn.Dropout(self.config.dropout)
        self.classifier = linear(self.config.n_embd, self.config.classes)

    def forward(  # type: ignore[override]
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each class at each token; see `BERT.forward`."""
        x = self._hidden(self.bert, ids, attention_mask, types)
        y: Tensor = self.classifier(self.drop(x))
        return y
