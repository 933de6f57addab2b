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

__all__ = ["POOLINGS", "RANK", "TextClassifier", "embed", "pool"]

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


def embed(
    who: str, x: Tensor, attention_mask: Tensor | None, pooling: str, normalize: bool
) -> Tensor:
    """Return one vector for each sequence, of length one where `normalize`; see `pool`.

    Raises:
        ValueError: an unknown pooling.
    """
    checks.choice(who, "pooling", pooling, POOLINGS)
    y = pool(x, attention_mask, pooling)
    return ops.l2_norm(y) if normalize else y


class TextClassifier(Model):
    """A model from token ids to a logit for each of `config.classes`.

    With one class it is a reranker: the logit is a text's score, or a pair of texts'.
    """

    @abstractmethod
    def forward(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return a logit for each class."""

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
