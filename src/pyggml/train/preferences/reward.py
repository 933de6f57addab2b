# SPDX-License-Identifier: MIT
"""Reward models: the loss of pairs of answers, and their batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks, ops
from ...data import Batch, side_by_side
from ...data.text.chat import EncodedPreferences
from ...errors import ShapeError
from ...nn.losses.reduction import reduce
from ...tensors import Tensor
from .datasets import PreferenceRows

__all__ = ["RewardDataset", "RewardLoss", "reward_loss"]


def reward_loss(chosen: Tensor, rejected: Tensor, reduction: str = "mean") -> Tensor:
    """Return the loss of a reward model: -log sigmoid(chosen - rejected).

    Args:
        chosen: scores of the preferred answers.
        rejected: scores of the others.
        reduction: "mean", "sum" or "none".

    Shape:
        each (B,) -> (), or (B,) for "none"

    Raises:
        TypeError: one is no tensor.
        ShapeError: the shapes differ.

    Source: Bradley and Terry 1952; Ouyang et al. 2022, arXiv:2203.02155; TRL's RewardTrainer.

    Example:
        >>> round(reward_loss(pg.tensor([1.0]), pg.tensor([0.0])).item(), 4)
        0.3133
    """
    checks.instance("reward_loss", "chosen", chosen, Tensor)
    checks.instance("reward_loss", "rejected", rejected, Tensor)
    if chosen.ndim != 1 or chosen.shape != rejected.shape:
        raise ShapeError(
            f"reward_loss: chosen and rejected must have one shape (B,); got {chosen.shape} and "
            f"{rejected.shape}"
        )
    return reduce(ops.softplus(ops.sub(rejected, chosen)), reduction)


class RewardLoss:
    """The loss of a reward model for `Trainer` and `TrainStep`, with its metrics.

    The model is a classifier of one class, whose logit is the reward. Evaluations tell `accuracy`,
    the share of pairs whose chosen answer has the higher reward, and `margin`, the mean difference.

    Example:
        >>> callable(RewardLoss())
        True
    """

    units = "pairs"

    def __call__(self, model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> Any:
        """Return the summed loss of a batch, its pairs, and the sums of the metrics."""
        count = x.shape[0] // 2
        rewards = model(x, **inputs).reshape(x.shape[0])
        chosen, rejected = rewards[:count], rewards[count:]
        difference = ops.sub(chosen, rejected)
        told = {"accuracy": ops.sum(ops.step(difference)), "margin": ops.sum(difference)}
        return reward_loss(chosen, rejected, "sum"), count, told


class RewardDataset(PreferenceRows):
    """Pairs of a chosen and a rejected conversation; give them to a `Loader`.

    A batch has the chosen ones in its first half and the rejected ones, in the same order, in its
    second. Rows are filled up to one of a few widths; `attention_mask` tells what counts.

    Args:
        encoded: pairs.
        seq_len: most tokens of a row; None is the longest document's.

    Shape:
        batch of B items: x, attention_mask (2B, T), y (2B,), 1 of a chosen one, int32

    Raises:
        ValueError: there are no pairs, or documents are too long.

    Example:
        >>> marks = [[False, True, True], [False, True]]
        >>> documents = pg.data.Documents.of([[1, 2, 3], [1, 4]], marks)
        >>> pairs = EncodedPreferences(documents, np.array([True, False]), paired=True)
        >>> RewardDataset(pairs).batch(np.array([0])).x[:, :3].tolist()
        [[1, 2, 3], [1, 4, 0]]
    """

    def __init__(self, encoded: EncodedPreferences, seq_len: int | None = None) -> None:
        super().__init__("RewardDataset", encoded, True, seq_len, 0)

    def fingerprint(self) -> int:
        """Return a checksum of the pairs."""
        return self.encoded.fingerprint()

    def batch(self, items: np.ndarray) -> Batch:
        """Read pairs.

        Shape:
            items (B,) -> x, attention_mask (2B, T), y (2B,) int32
        """
        items = np.asarray(items)
        numbers = np.concatenate([2 * items, 2 * items + 1])
        x, mask = side_by_side(self.encoded.documents, numbers, self.seq_len)
        return Batch(x, self.encoded.labels[numbers].astype(np.int32), attention_mask=mask)
