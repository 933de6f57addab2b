# SPDX-License-Identifier: MIT
"""One vector for a sequence of tokens, and classes of a text by it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .. import checks, ops
from ..errors import ShapeError
from ..nn import functional
from ..nn.mode import in_mode
from ..ops.operands import need_dtype, need_tensor
from ..tensors import Tensor, zeros
from .base import Model
from .targets import check_targets

__all__ = ["POOLINGS", "RANK", "TextClassifier", "TextEncoder", "pool"]

# From 1 on as in llama.cpp's enum llama_pooling_type; the last is a classifier's own numbers.
POOLINGS = ("mean", "cls", "last")
RANK = 4


def pool(x: Tensor, attention_mask: Tensor | None, pooling: str) -> Tensor:
    """Return one vector for each sequence.

    Args:
        x: a vector for each token.
        attention_mask: 1 where a token counts, 0 where it fills up behind the others; None counts
            all.
        pooling: "mean" of the tokens, "cls", the first one, or "last", the last that counts.

    Shape:
        x (B, T, C), attention_mask (B, T) i32 -> (B, C)
    """
    batch, length, _ = x.shape
    if pooling == "cls":
        return x[:, 0]
    if attention_mask is None:
        return x[:, length - 1] if pooling == "last" else x.mean(dim=1)
    counts = ops.step(ops.cast(attention_mask, "f32"))
    if pooling == "last":
        after = zeros((batch, 1), device=x.device)
        after = ops.concat([counts[:, 1:], after], 1) if length > 1 else after
        counts = counts * (1.0 - after)
    counts = counts.reshape(batch, length, 1)
    tokens = ops.clamp(counts.sum(dim=1), 1.0, float(length))
    return (x * counts).sum(dim=1) / tokens


class TextEncoder(Model):
    """A model that makes one vector of a text.

    The pooling is that of the configuration, or "last" where that chooses none.
    """

    @abstractmethod
    def token_vectors(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return a vector for each token.

        Shape:
            ids, attention_mask (B, T) i32 -> (B, T, C)
        """

    @property
    def vector_pooling(self) -> str | None:
        """The pooling of the configuration; None if none was chosen."""
        pooling: str | None = self.config.pooling
        return pooling

    def embed(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        pooling: str | None = None,
        normalize: bool = True,
    ) -> Tensor:
        """Return one vector for each sentence; its gradient trains them.

        Args:
            ids: tokens.
            attention_mask: 1 where a token counts, 0 where it fills up behind the others; None
                counts all.
            pooling: "mean", "cls" or "last"; None is the configuration's.
            normalize: make them of length one, so that their dot products are cosines.

        Shape:
            ids, attention_mask (B, T) i32 -> (B, C)

        Raises:
            ValueError: an unknown pooling.
            ShapeError: a shape does not fit.

        Source: Reimers and Gurevych 2019, arXiv:1908.10084; of the last token: Zhang et al. 2025,
            arXiv:2506.05176.

        Example:
            >>> model = BERT(BERTConfig.preset("tiny", vocab_size=65))
            >>> model.embed(tensor([[1, 2, 3], [4, 5, 6]])).shape
            (2, 64)
        """
        pooling = (self.vector_pooling or "last") if pooling is None else pooling
        checks.choice(f"{type(self).__name__}.embed", "pooling", pooling, POOLINGS)
        y = pool(self.token_vectors(ids, attention_mask), attention_mask, pooling)
        return ops.l2_norm(y) if normalize else y


class TextClassifier(Model):
    """A model from token ids to a logit for each of `config.classes`.

    With one class it is a reranker: the logit is a text's score, or a pair of texts'.
    """

    @abstractmethod
    def forward(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return a logit for each class."""

    @property
    def task(self) -> str | None:
        """The task of a `Trainer`; None of a reranker, whose target is a number."""
        return None if self.target_classes is None else "classification"

    @property
    def target_classes(self) -> int | None:
        """The classes of a text; None where the target is a number."""
        classes = int(self.config.classes)
        return classes if classes > 1 else None

    def loss(self, ids: Tensor, targets: Tensor, reduction: str = "mean", **inputs: Any) -> Tensor:
        """Return the cross-entropy of the classes.

        With one class, targets are from 0 to 1, and the loss is the binary cross-entropy of the
        score, as that of sentence-transformers' CrossEncoder.

        Args:
            ids: tokens.
            targets: class of each text, i32; -100 is not counted. With one class f32.
            reduction: "mean", "sum" or "none".
            inputs: see `forward`.

        Shape:
            ids (B, T) i32, targets (B,) -> () or, with "none", (B,)

        Raises:
            ShapeError: targets are not (B,), or one is no class.
        """
        who = f"{type(self).__name__}.loss"
        classes = self.target_classes
        if classes is not None:
            check_targets(who, targets, classes)
            return ops.cross_entropy(self(ids, **inputs), targets, reduction=reduction)
        need_dtype(who, "targets", need_tensor(who, "targets", targets), "f32")
        if targets.shape != ids.shape[:1]:
            raise ShapeError(
                f"{who}: targets must be ({ids.shape[0]},), one for each text; got {targets.shape}"
            )
        logits = self(ids, **inputs).reshape(ids.shape[0])
        return functional.binary_cross_entropy_with_logits(logits, targets, reduction=reduction)

    def predict_proba(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return the probability of each class, with nothing dropped.

        Args:
            ids: tokens.
            inputs: see `forward`.

        Shape:
            ids (B, T) i32 -> (B, classes), rows that sum to 1; of one class the sigmoid of its
            score
        """
        with in_mode(self, training=False):
            logits = self(ids, **inputs)
        return ops.sigmoid(logits) if self.target_classes is None else ops.soft_max(logits)
