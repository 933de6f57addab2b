# SPDX-License-Identifier: MIT
"""Buckets: gradients that lie side by side and leave together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...backend.device import Device
from ...backend.library import lib
from ...tensors import Tensor

__all__ = ["BUCKET_BYTES", "SMALL_BYTES", "Bucket", "divide", "make_buckets"]

# Smaller ones leave earlier; each ends a part of the backward, which takes a fraction of a ms.
BUCKET_BYTES = 8 << 20
# Parameters with fewer bytes are sent several at a time.
SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """Several parameters whose gradients are one vector, gaps between them included.

    Args:
        members: numbers of the parameters.
        places: of each in the vector, in elements.
        size: elements of the vector.
        owner: the rank that updates the parameters; None is every rank.
    """

    members: tuple[int, ...]
    places: tuple[int, ...]
    size: int
    owner: int | None

    @property
    def nbytes(self) -> int:
        """Bytes of the vector, whose elements are f32."""
        return 4 * self.size


def divide(costs: Sequence[int], ranks: int) -> list[int]:
    """Return the rank of each of several costs, so that the ranks' sums are about equal.

    Args:
        costs: of parameters, such as bytes.
        ranks: their number.

    Source: the longest first, each to the rank that has least: Graham 1969, doi:10.1137/0117039.

    Example:
        >>> divide([5, 3, 1, 1], 2)
        [0, 1, 1, 1]
    """
    sums, owners = [0] * ranks, [0] * len(costs)
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        owners[i] = min(range(ranks), key=lambda rank: (sums[rank], rank))
        sums[owners[i]] += costs[i]
    return owners


def make_buckets(
    params: Sequence[Tensor], order: Sequence[int], owners: Sequence[int | None], device: Device
) -> list[Bucket]:
    """Divide parameters, in the order of their gradients in memory, into buckets.

    Args:
        params: the parameters.
        order: their numbers.
        owners: of each parameter.
        device: has the gradients.
    """
    align = lib.ggml_backend_buft_get_alignment(device.buffer_type) // 4
    buckets: list[Bucket] = []
    members: list[int] = []
    places: list[int] = []
    size = 0
    for i in order:
        length = -(-math.prod(params[i].shape) // align) * align
        if members and (owners[i] != owners[members[0]] or 4 * (size + length) > BUCKET_BYTES):
            buckets.append(Bucket(tuple(members), tuple(places), size, owners[members[0]]))
            members, places, size = [], [], 0
        members.append(i)
        places.append(size)
        size += length
    buckets.append(Bucket(tuple(members), tuple(places), size, owners[members[0]]))
    return buckets
