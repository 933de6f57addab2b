# SPDX-License-Identifier: MIT
"""Sums over ranks that go on while these compute: of f32 numbers, sent as f32 or as bf16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backend import dtypes

__all__ = ["Sums"]

# What is larger is summed part by part, as MPI makes a buffer as large as each sum.
_PART_BYTES = 8 << 20


class Sums:
    """The steps of sums and broadcasts, which `Progress` takes.

    Args:
        mpi: the module mpi4py.MPI.
        comm: communicator of the first steps.
        later: communicator of later steps, which mix with first steps in no certain order.
    """

    def __init__(self, mpi: Any, comm: Any, later: Any):
        self._mpi, self._comm, self._later = mpi, comm, later
        self._rank, self._size = comm.Get_rank(), comm.Get_size()

    def plain(self, array: np.ndarray, to: int | None, op: Any) -> Iterator[list[Any]]:
        """Sum a flat array over all ranks, on every rank or on one.

        Args:
            array: replaced by the sum; on the others left as it is.
            to: the rank that gets the sum; None is every rank.
            op: of MPI.
        """
        if to is None and 0 < array.size < self._size:
            # Rabenseifner's algorithm divides the numbers between the ranks.
            padded = np.zeros(self._size, array.dtype)
            padded[: array.size] = array
            yield from self.plain(padded, to, op)
            array[:] = padded[: array.size]
            return
        most = max(1, _PART_BYTES // array.itemsize)
        place, comm = self._mpi.IN_PLACE, self._comm
        for at in range(0, array.size, most):
            part = array[at : at + most]
            if to is None:
                yield [comm.Iallreduce(place, part, op=op)]
            elif to == self._rank:
                yield [comm.Ireduce(place, part, op=op, root=to)]
            else:
                yield [comm.Ireduce(part, None, op=op, root=to)]
            comm = self._later

    def rounded(
        self, array: np.ndarray, to: int | None, residual: np.ndarray | None
    ) -> Iterator[list[Any]]:
        """Sum a flat f32 array over all ranks, of which bf16 numbers are sent.

        The numbers are added in f32, in the order of the ranks.

        Args:
            array: replaced by the sum, where this rank gets it.
            to: the rank that gets the sum; None is every rank, and the sum is then rounded as well.
            residual: what rounding has lost on this rank so far: added before, and replaced.
        """
        if residual is not None:
            array += residual
        if to is None:
            return self._rounded_to_all(array, residual)
        return self._rounded_to_one(array, to, residual)

    def _rounded_to_all(
        self, array: np.ndarray, residual: np.ndarray | None
    ) -> Iterator[list[Any]]:
        """Let each rank add up a part, and send the rounded sum of it to all."""
        part = -(-array.size // self._size)
        sent = np.zeros(part * self._size, np.uint16)
        sent[: array.size] = _round(array)
        _keep(residual, array, sent[: array.size])
        received = np.empty_like(sent)
        yield [self._comm.Ialltoall(sent, received)]
        total = np.zeros(part, np.float32)
        for numbers in received.reshape(self._size, part):
            total += _widen(numbers)
        own = _round(total)
        if residual is not None:
            mine = residual[part * self._rank : part * (self._rank + 1)]
            mine += _lost(total, own)[: mine.size]
        yield [self._later.Iallgather(own, sent)]
        array[:] = _widen(sent)[: array.size]

    def _rounded_to_one(
        self, array: np.ndarray, to: int, residual: np.ndarray | None
    ) -> Iterator[list[Any]]:
        """Send rounded numbers to the rank that adds them up."""
        if to != self._rank:
            sent = _round(array)
            _keep(residual, array, sent)
            yield [self._comm.Igather(sent, None, to)]
            return
        if residual is not None:
            residual[:] = 0  # its own numbers are not rounded
        received = np.empty((self._size, array.size), np.uint16)
        yield [self._comm.Igather(self._mpi.IN_PLACE, received, to)]
        for rank, numbers in enumerate(received):
            if rank != to:
                array += _widen(numbers)

    def send(self, array: np.ndarray, src: int) -> Iterator[list[Any]]:
        """Replace a flat array by that of one rank.

        Args:
            array: of the same size and dtype on every rank.
            src: the rank.
        """
        data, most = array.view(np.uint8), 1 << 30  # what MPI can count
        yield [self._comm.Ibcast(data[at : at + most], src) for at in range(0, data.size, most)]


def _round(array: np.ndarray) -> np.ndarray:
    """Return bf16 numbers, as u16."""
    return dtypes.encode(array, dtypes.bf16).reshape(-1).view(np.uint16)


def _widen(numbers: np.ndarray) -> np.ndarray:
    """Return bf16 numbers as f32."""
    return (numbers.astype(np.uint32) << 16).view(np.float32)


def _lost(array: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """Return what rounding has lost; nothing of numbers that are not finite."""
    with np.errstate(invalid="ignore"):
        lost = array - _widen(rounded)
    return lost if np.isfinite(lost).all() else np.zeros_like(lost)


def _keep(residual: np.ndarray | None, array: np.ndarray, rounded: np.ndarray) -> None:
    """Keep what rounding has lost."""
    if residual is not None:
        residual[:] = _lost(array, rounded)
