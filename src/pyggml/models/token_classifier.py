# SPDX-License-Identifier: MIT
"""TokenClassifier: what models that give each token a class share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..nn.mode import in_mode
from ..tensors import Tensor
from .base import Model
from .targets import check_targets

__all__ = ["TokenClassifier"]


class TokenClassifier(Model):
    """A model from token ids to a logit for each of `config.classes` at each token.

    `loss` takes the batches of `data.TokenClassificationDataset`.
    """

    task = "token_classification"

    @abstractmethod
    def forward(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return a logit for each class at each token."""

    @property
    def target_classes(self) -> int:
        """The classes of a token."""
        return int(self.config.classes)

    def loss(self, ids: Tensor, targets: Tensor, reduction: str = "mean", **inputs: Any) -> Tensor:
        """Return the cross-entropy of the classes.

        Args:
            ids: tokens.
            targets: class of each token; -100 is not counted.
            reduction: "mean", "sum" or "none".
            inputs: see `forward`.

        Shape:
            ids, targets (B, T) i32 -> () or, with "none", (B, T)

        Raises:
            ShapeError: the shapes differ, or a target is no class.
        """
        who = f"{type(self).__name__}.loss"
        check_targets(who, targets, self.target_classes)
        if ids.shape != targets.shape:
            raise ShapeError(
                f"{who}: ids and targets must have one shape; got {ids.shape} and {targets.shape}"
            )
        return ops.cross_entropy(self(ids, **inputs), targets, reduction=reduction)

    def predict_proba(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return the probability of each class at each token, with nothing dropped.

        Args:
            ids: tokens.
            inputs: see `forward`.

        Shape:
            ids (B, T) i32 -> (B, T, classes), rows that sum to 1
        """
        with in_mode(self, training=False):
            return ops.soft_max(self(ids, **inputs))
