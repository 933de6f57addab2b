# SPDX-License-Identifier: MIT
"""MaskedLM: what models that predict hidden tokens share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..tensors import Tensor
from .base import Model
from .targets import check_targets

__all__ = ["MaskedLM"]


class MaskedLM(Model):
    """A model from token ids, some of them hidden, to the logits of each.

    `loss` takes the batches of `data.AugmentedDataset` with `data.MaskTokens`.
    """

    @abstractmethod
    def forward(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return a logit for each token of the vocabulary."""

    @property
    def target_classes(self) -> int:
        """The vocabulary's tokens."""
        return int(self.config.vocab_size)

    def loss(self, ids: Tensor, targets: Tensor, reduction: str = "mean", **inputs: Any) -> Tensor:
        """Return the cross-entropy of the hidden tokens.

        Args:
            ids: tokens, some of them hidden.
            targets: what is hidden; -100 where nothing is.
            reduction: "mean", "sum" or "none".
            inputs: see `forward`.

        Shape:
            ids, targets (B, T) i32 -> () or, with "none", (B, T)

        Raises:
            ShapeError: the shapes differ, or a target is not in the vocabulary.
        """
        who = f"{type(self).__name__}.loss"
        check_targets(who, targets, self.target_classes)
        if ids.shape != targets.shape:
            raise ShapeError(
                f"{who}: ids and targets must have one shape; got {ids.shape} and {targets.shape}"
            )
        return ops.cross_entropy(self(ids, **inputs), targets, reduction=reduction)
