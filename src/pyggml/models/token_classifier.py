# SPDX-License-Identifier: MIT
"""TokenClassifier: what models that give each token a class share."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..nn.mode import in_mode
from ..tensors import Tensor
from .per_token import PerToken

__all__ = ["TokenClassifier"]


class TokenClassifier(PerToken):
    """A model from token ids to a logit for each of `config.classes` at each token.

    `loss` takes the batches of `data.TokenClassificationDataset`.
    """

    task = "token_classification"

    @property
    def target_classes(self) -> int:
        """The classes of a token."""
        return int(self.config.classes)

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
