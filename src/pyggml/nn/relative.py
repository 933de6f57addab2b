# SPDX-License-Identifier: MIT
"""Relative positions: a trained number for each head and distance, added to the scores."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, ops
from ..backend.device import Device
from ..errors import ShapeError
from ..ops.operands import need_tensor
from ..tensors import Tensor, tensor
from . import init
from .layers import Embedding, check_sizes

__all__ = ["RelativePositionBias", "relative_buckets"]


def relative_buckets(
    queries: ArrayLike,
    keys: ArrayLike,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> np.ndarray:
    """Return a bucket for each distance between positions; far distances share buckets.

    Half of the buckets are for one distance each, the others widen as powers up to `max_distance`;
    all that is further shares the last. Bidirectional, one half is for keys before the query and
    one for those after it; otherwise keys after it count as at the same place.

    Args:
        queries: positions.
        keys: positions.
        buckets: how many numbers there are; even if bidirectional.
        max_distance: from here on all is one bucket.
        bidirectional: whether keys after the query have buckets.

    Shape:
        queries (T,), keys (S,) -> (T, S) i32

    Raises:
        TypeError: positions are not whole numbers.
        ShapeError: positions are not vectors.
        ValueError: there are too few buckets for the distances.

    Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1, and its code.

    Example:
        >>> relative_buckets([0, 3], [0, 1, 2, 3], 8, 16).tolist()
        [[0, 5, 6, 6], [2, 2, 1, 0]]
    """
    buckets, max_distance = check_sizes(
        "relative_buckets", buckets=buckets, max_distance=max_distance
    )
    bidirectional = checks.flag("relative_buckets", "bidirectional", bidirectional)
    each = buckets // 2 if bidirectional else buckets
    exact = each // 2
    if (bidirectional and buckets % 2) or exact < 1 or max_distance <= exact:
        raise ValueError(
            "relative_buckets: buckets must be even and at least "
            f"{4 if bidirectional else 2}, max_distance above {exact}; "
            f"got {buckets} buckets and max_distance={max_distance}"
        )
    at, of = (
        checks.array("relative_buckets", name, given, 1, "iu").astype(np.int64)
        for name, given in (("queries", queries), ("keys", keys))
    )
    distance = of[None, :] - at[:, None]
    first = np.where(distance > 0, each, 0) if bidirectional else 0
    away = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
    # In f32 as the published code has it: a distance on a border falls to the same side.
    far = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(exact))
    far = far / np.float32(math.log(max_distance / exact)) * np.float32(each - exact)
    wide = np.minimum(exact + far.astype(np.int64), each - 1)
    return np.asarray(first + np.where(away < exact, away, wide), np.int32)


@lru_cache(maxsize=32)
def _between(
    length: int, buckets: int, max_distance: int, bidirectional: bool, device: Device
) -> Tensor:
    """The constant buckets of a sequence with itself, one tensor per length."""
    at = np.arange(length)
    found = relative_buckets(at, at, buckets, max_distance, bidirectional)
    return tensor(found, device=device)


class RelativePositionBias(Embedding):
    """A trained number for each head and bucket of distances.

    Args:
        buckets: how many; see `relative_buckets`.
        n_head: heads.
        max_distance: from here on all is one bucket.
        bidirectional: whether keys after the query have buckets of their own.
        init_weight: initialiser of the (buckets, H) table; None is the standard normal.

    Shape:
        T, or buckets (T, S) i32 -> (H, T, S)

    Raises:
        ValueError: a size is not a positive integer, or there are too few buckets.

    Source: Raffel et al. 2019, arXiv:1910.10683.

    Example:
        >>> RelativePositionBias(32, 4)(5).shape
        (4, 5, 5)
    """

    def __init__(
        self,
        buckets: int,
        n_head: int,
        max_distance: int = 128,
        bidirectional: bool = True,
        init_weight: init.Initializer | None = None,
    ) -> None:
        super().__init__(buckets, n_head, init_weight=init_weight)
        relative_buckets([0], [0], buckets, max_distance, bidirectional)
        self.buckets = buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional

    def between(self, queries: ArrayLike, keys: ArrayLike) -> np.ndarray:
        """Return the buckets of any positions, for `forward`; see `relative_buckets`."""
        return relative_buckets(queries, keys, self.buckets, self.max_distance, self.bidirectional)

    def forward(self, positions: Tensor | int) -> Tensor:
        """Return the numbers that are added to the scores.

        Args:
            positions: the length of a sequence that attends to itself; or the buckets, as
                `between` makes them.
        """
        if isinstance(positions, Tensor):
            found = need_tensor("RelativePositionBias", "positions", positions)
        else:
            (positions,) = check_sizes("RelativePositionBias", length=positions)
            found = _between(
                positions,
                self.buckets,
                self.max_distance,
                self.bidirectional,
                self.weight.device,
            )
        if found.ndim != 2:
            raise ShapeError(f"RelativePositionBias: buckets must be (T, S); got {found.shape}")
        return ops.get_rows(self.weight, found).permute(2, 0, 1).contiguous()
