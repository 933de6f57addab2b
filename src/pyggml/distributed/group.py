# SPDX-License-Identifier: MIT
"""A group of ranks; the base is a single process, for which every operation is done at once."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from .. import checks

__all__ = ["Group"]

_T = TypeVar("_T")


class Group:
    """The ranks that train together; this base is one process by itself.

    Attributes:
        rank: number of this process, from 0.
        size: number of ranks.
        local_rank: number of this process among those of its host.
        local_size: ranks of this host.
        host: name of the host.
        doing: what this rank is at, for the message of a failure.
        waited_s: seconds that this rank has waited for others.
        goes_on: whether operations of `begin_arrival` go on while this process computes.

    Example:
        >>> group = Group()
        >>> group.rank, group.size, group.any(False)
        (0, 1, False)
    """

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    goes_on = False

    def __init__(self) -> None:
        self.host = platform.node()
        self.doing = ""
        self.waited_s = 0.0

    @property
    def is_first(self) -> bool:
        """True on rank 0, which writes files and logs."""
        return self.rank == 0

    def reduce(self, arrays: list[np.ndarray], op: str = "sum") -> None:
        """Replace contiguous arrays by their sum, maximum or minimum over all ranks.

        Args:
            arrays: of the same shapes and dtypes on every rank.
            op: sum, max or min.
        """

    def begin_sum(
        self,
        array: np.ndarray,
        to: int | None = None,
        rounds: bool = False,
        residual: np.ndarray | None = None,
    ) -> None:
        """Begin to replace a flat array by its sum over all ranks; `finish` waits for it.

        Every rank begins the same operations in the same order.

        Args:
            array: of the same size and dtype on every rank; it must stay as it is meanwhile.
            to: the rank that gets the sum; None is every rank.
            rounds: f32 numbers are sent as bf16, and added in f32.
            residual: what rounding has lost on this rank so far, of the array's size: it is added
                to the array, and replaced by what is lost now; None drops it.
        """

    def begin_send(self, array: np.ndarray, src: int) -> None:
        """Begin to replace a flat array by that of one rank; `finish` waits for it.

        Args:
            array: of the same size and dtype on every rank; it must stay as it is meanwhile.
            src: the rank.
        """

    def begin_arrival(self, array: np.ndarray, src: int) -> int:
        """Begin to replace a flat array by that of one rank; other operations overtake it.

        Every rank begins the same ones in the same order.

        Args:
            array: of the same size and dtype on every rank; it must stay as it is meanwhile.
            src: the rank.

        Returns:
            Its number, for `arrive`.
        """
        return 0

    def arrive(self, number: int) -> None:
        """Wait for an array, and for those that were begun before it; ranks need not do the same.

        Args:
            number: what `begin_arrival` returned.
        """

    def finish(self, most: int = 0) -> None:
        """Wait for what was begun.

        Args:
            most: so many operations may be left; ranks may call it with a number of their own.
        """

    def send_all(self, array: np.ndarray, src: int = 0) -> None:
        """Replace a contiguous array by that of one rank.

        Args:
            array: of the same shape and dtype on every rank.
            src: the rank.
        """

    def share(self, value: _T, src: int = 0) -> _T:
        """Return one rank's value, any object that pickle takes.

        Args:
            value: the value; those of other ranks do not count.
            src: the rank.
        """
        return value

    def gather(self, value: _T) -> list[_T]:
        """Return the values of all ranks in their order, any objects that pickle takes.

        Args:
            value: of this rank.
        """
        return [value]

    def gather_first(self, value: _T) -> list[_T]:
        """Return the values of all ranks on rank 0, and this rank's own on the others.

        Args:
            value: of this rank, any object that pickle takes.
        """
        return [value]

    def barrier(self) -> None:
        """Wait until every rank is here."""

    def meet(self, where: str) -> None:
        """Wait until every rank is here; no other operation takes this one for its own.

        Args:
            where: the function that every rank calls, of at most 32 letters.

        Raises:
            DistributedError: another rank waits in an operation that this rank has left, or calls
                another function.
        """

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for other ranks.

        Args:
            is_done: called again and again, until it returns True.

        Raises:
            TypeError: it cannot be called.
        """
        checks.function("wait_until", "is_done", is_done, "takes nothing, returns True or False")
        while not is_done():
            time.sleep(0)

    def set_timeout(self, seconds: float) -> None:
        """End the job when a rank hangs for so long.

        A rank hangs when nothing is heard of it, or when it computes nothing while others wait.

        Args:
            seconds: 0 waits for ever.
        """

    def any(self, flag: bool) -> bool:
        """Return True where the flag of a rank is True.

        Args:
            flag: of this rank.
        """
        if self.size == 1:
            return flag
        found = np.array([flag], np.int32)
        self.reduce([found], "max")
        return bool(found[0])

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let rank 0 run a block first, and the others when it is done, as they use its files."""
        if not self.is_first:
            self.barrier()
        yield
        if self.is_first:
            self.barrier()

    def leave(self, message: str, code: int = 1) -> bool:
        """Tell the other ranks that this one fails, and end the job unless all of them do.

        One rank tells what happened: the lowest of those that fail at about the same time.

        Args:
            message: what happened.
            code: exit code of the job.

        Returns:
            Whether this rank is to tell of the failure by itself, as all ranks have it.
        """
        return True

    def maxima(self, *values: int) -> list[int]:
        """Return the largest of whole numbers over all ranks.

        Args:
            values: of this rank, as many on every rank.
        """
        found = np.array([checks.whole("maxima", "each value", each) for each in values], np.int64)
        self.reduce([found], "max")
        return list(map(int, found))

    def sums(self, *values: float) -> list[float]:
        """Return the sums of numbers over all ranks, in f64.

        Args:
            values: of this rank, as many on every rank.
        """
        if self.size == 1:
            return list(values)
        found = np.array(values, np.float64)
        self.reduce([found])
        return list(map(float, found))

    def first(self, function: Callable[[], _T]) -> _T:
        """Call a function on rank 0 while the others wait.

        Args:
            function: takes nothing.

        Returns:
            What the function returned, on every rank.

        Raises:
            Exception: what it raised on rank 0, on every rank.
            TypeError: the function cannot be called.
        """
        checks.function("first", "function", function, "takes nothing")
        if self.size == 1:
            return function()
        found: list[_T] = []
        error: Exception | None = None
        if self.is_first:
            try:
                found.append(function())
            except Exception as problem:  # noqa: BLE001 - all ranks raise it
                error = problem
        told = self.share(_portable(error))
        if told is not None:
            raise told if error is None else error
        return self.share(found)[0]


def _portable(error: Exception | None) -> Exception | None:
    """Return an error that pickle takes and restores, or one with its text."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever a class's own pickling raises
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
