# SPDX-License-Identifier: MIT
"""PerToken: the loss of models that predict a class at each token, such as a hidden token."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..tensors import Tensor
from .base import Model
from .targets import check_targets

__all__ = ["PerToken"]


class PerToken(Model):
    """A model from token ids to the logits of `target_classes` at each token."""

    @abstractmethod
    def forward(self, ids: Tensor, **inputs: Any) -> Tensor:
        """Return a logit for each class at each token."""

    @property
    @abstractmethod
    def target_classes(self) -> int:
        """The classes of a token."""

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
