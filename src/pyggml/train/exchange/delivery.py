# SPDX-License-Identifier: MIT
"""Delivery: each rank has the parameters that others update when it needs them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ...backend.memory import RELEASES_PAGES
from ...distributed import Group
from ...graph import Graph
from ...tensors import Tensor
from . import buckets
from .arrivals import Arrivals
from .buckets import Bucket
from .windows import Windows

__all__ = ["Delivery", "check_windows"]


class Delivery:
    """Sends the parameters that each rank updates to the others.

    Args:
        group: the ranks.
        optimizer: has the parameters.
        made: buckets of the parameters, with their owners.
        zero: 3 lets ranks hold large parameters of others only while ops read them; with 1 and 2
            they keep all of them, and with 0 every rank updates all.

    Attributes:
        arrivals: sends the parameters that ranks keep, or None.
        windows: brings those that they do not keep, or None.
    """

    def __init__(self, group: Group, optimizer: Any, made: Sequence[Bucket], zero: int):
        self.arrivals: Arrivals | None = None
        self.windows: Windows | None = None
        if not zero:
            return
        params: list[Tensor] = optimizer.params
        most = max(buckets.SMALL_BYTES, mmap.PAGESIZE) if zero > 2 else math.inf
        owners = {i: bucket.owner or 0 for bucket in made for i in bucket.members}
        large = [i for i, param in enumerate(params) if param.nbytes >= most]
        if large:
            self.windows = Windows(group, [params[i] for i in large], [owners[i] for i in large])
        kept = [([i for i in b.members if params[i].nbytes < most], b.owner or 0) for b in made]
        members = [[params[i] for i in numbers] for numbers, _ in kept if numbers]
        if members:
            self.arrivals = Arrivals(group, members, [owner for numbers, owner in kept if numbers])

    def settle_order(self, graph: Graph) -> None:
        """Choose, once, the order in which parameters come; every rank calls it.

        Args:
            graph: of a step.
        """
        if self.arrivals is not None:
            self.arrivals.settle_order(graph)
        if self.windows is not None:
            self.windows.settle_order(graph)

    def begin(self, overlaps: bool) -> None:
        """Begin to send the parameters that ranks keep, after an update; every rank calls it.

        Args:
            overlaps: whether they arrive during the next forward, and not before.
        """
        if self.arrivals is not None:
            self.arrivals.overlaps = overlaps
            self.arrivals.begin()

    @contextmanager
    def awaiting(self, graph: Graph | None, trains: bool = True) -> Iterator[None]:
        """Let a graph that runs in the block have the parameters that it reads.

        With `windows`, every rank enters it.

        Args:
            graph: of a step or of an evaluation; None runs none.
            trains: whether the graphs of the ranks are those of a step.
        """
        with ExitStack() as stack:
            if self.arrivals is not None and graph is not None:
                stack.enter_context(self.arrivals.awaiting(graph))
            if self.windows is not None:
                stack.enter_context(self.windows.providing(graph, trains))
            yield

    def gather(self) -> None:
        """Let every rank hold all parameters; every rank calls it."""
        if self.windows is not None:
            self.windows.gather()


def check_windows(group: Group, optimizer: Any) -> None:
    """Raise where ranks cannot hold parameters for as long as ops read them.

    Args:
        group: the ranks.
        optimizer: has the parameters.

    Raises:
        ValueError: another device, system or MPI.
    """
    cause = "" if optimizer.device.kind == "cpu" else f"parameters on {optimizer.device.name}"
    cause = cause or ("" if RELEASES_PAGES else "a system that is not Linux")
    cause = cause or ("" if group.goes_on else "an MPI without MPI_THREAD_MULTIPLE")
    if cause:
        raise ValueError(
            f"Exchange: dropping parameters needs the CPU's memory on Linux; got {cause}: divide "
            "gradients and state alone, with 2"
        )
