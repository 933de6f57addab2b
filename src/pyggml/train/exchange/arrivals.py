# SPDX-License-Identifier: MIT
"""Parameters on their way: each rank sends those that it has updated while the next step begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...backend.device import alone
from ...backend.headers import address
from ...distributed import Group
from ...graph import Graph
from ...graph.observers import observe
from ...tensors import Tensor
from ...tensors.storage import begin_write, host_vector, memory_vector
from . import buckets

__all__ = ["Arrivals"]


class Arrivals:
    """Sends updated parameters, bucket by bucket, in the order in which a forward reads them.

    Until a bucket is there, nothing may read its parameters: a graph that runs inside `awaiting`
    waits for it right before the first op that does; whatever else reads or writes a parameter
    waits for all of them.

    Args:
        group: the ranks.
        members: the parameters of each bucket.
        owners: the rank that sends each bucket.

    Attributes:
        overlaps: whether they arrive during the next forward; else `begin` waits for them.
        late: buckets that the last graph found on their way, and waited for while it ran.
    """

    def __init__(self, group: Group, members: Sequence[list[Tensor]], owners: Sequence[int]):
        self.overlaps, self.late = True, 0
        self._group, self._members, self._owners = group, members, owners
        self._params = [param for params in members for param in params]
        self._order = list(range(len(members)))
        self._is_settled = False
        self._bundles: list[_Bundle] = []
        self._arrived = 0
        self._is_pending = self._is_watched = False
        self._known: WeakKeyDictionary[Graph, tuple[int, dict[int, int]]] = WeakKeyDictionary()

    def settle_order(self, graph: Graph) -> None:
        """Choose, once, the order of the buckets: that of rank 0's forward.

        Args:
            graph: of a step.
        """
        if not self._is_settled:
            reads = self._first_reads(graph)
            order = sorted(range(len(reads)), key=lambda b: (reads[b], b))
            self._order, self._is_settled = self._group.share(order), True

    def begin(self) -> None:
        """Begin to send the parameters that are not frozen; every rank calls it."""
        self.settle()
        self._bundles, self._arrived = [], 0
        for bucket in self._order:
            trained = [param for param in self._members[bucket] if param.requires_grad]
            self._bundles.append(_Bundle(self._group, trained, self._owners[bucket]))
        self._is_pending = True
        self._mark(self.settle)
        # ggml copies what several devices read before it shows the first op of a part.
        on_cpu = self._params[0].device.kind == "cpu"
        if not (self.overlaps and self._group.goes_on and on_cpu):
            self.settle()

    def settle(self) -> None:
        """Wait until all parameters are there."""
        with alone():
            if self._is_pending and not self._is_watched:
                self._is_watched = True  # what follows writes to the parameters
                try:
                    self._wait(len(self._bundles))
                finally:
                    self._is_watched = False
                self._is_pending = False
                self._mark(None)

    @contextmanager
    def awaiting(self, graph: Graph) -> Iterator[None]:
        """Let a graph that runs in the block wait for each bucket before the ops that read it.

        Args:
            graph: of a step; it writes no parameters.
        """
        if not self._is_pending:
            yield
            return
        first, waits = self._waits(graph)
        self._is_watched = True
        try:
            self._wait(first)
            self.late = 0
            with observe(lambda _: _Watch(self, waits)):
                yield
        finally:
            self._is_watched = False
        self.settle()

    def wait_for(self, count: int) -> None:
        """Wait, while a graph runs, until the first buckets are there.

        Args:
            count: their number.
        """
        self.late += max(0, count - self._arrived)
        self._wait(count)

    def _wait(self, count: int) -> None:
        """Wait until the first buckets are there."""
        for bundle in self._bundles[self._arrived : count]:
            bundle.take()
            self._arrived += 1

    def _mark(self, pending: Any) -> None:
        """Tell the memory of the parameters what ends what goes on in it."""
        for param in self._params:
            param.buffer.pending = pending

    def _waits(self, graph: Graph) -> tuple[int, dict[int, int]]:
        """Return how many buckets a graph needs at first, and after ops by their addresses."""
        if graph not in self._known or not self._is_settled:
            reads, headers = self._first_reads(graph), graph.headers
            first, waits = 0, dict[int, int]()
            for count, bucket in enumerate(self._order, 1):
                if not reads[bucket]:
                    first = count
                elif reads[bucket] < len(headers):
                    waits[address(headers[reads[bucket] - 1])] = count
            self._known[graph] = first, waits
        return self._known[graph]

    def _first_reads(self, graph: Graph) -> list[int]:
        """Return for each bucket the place of the first op that reads it."""
        places = iter(graph.readers(self._params))
        none = [graph.n_nodes]
        return [min((next(places) or none)[0] for _ in params) for params in self._members]


class _Bundle:
    """The parameters of a bucket: large ones are sent from where they lie, others as one vector.

    Args:
        group: the ranks.
        params: those to send, perhaps none.
        owner: the rank that sends them.
    """

    def __init__(self, group: Group, params: list[Tensor], owner: int):
        self._group, self._is_own, self._number = group, owner == group.rank, 0
        self._vectors = ExitStack()
        self._small = [param for param in params if param.nbytes < buckets.SMALL_BYTES]
        for param in params:
            if param.nbytes >= buckets.SMALL_BYTES:
                vector = self._vectors.enter_context(host_vector(param.node))
                self._number = group.begin_arrival(vector.reshape(-1), owner)
        if self._small:
            self._packed = np.concatenate([param.numpy().ravel() for param in self._small])
            self._number = group.begin_arrival(self._packed, owner)
        for param in self._small:
            # Here, as is that of the others: what comes later is no new write.
            begin_write(param.node)

    def take(self) -> None:
        """Wait for the parameters, and put them where they belong."""
        self._group.arrive(self._number)
        self._vectors.close()
        if not self._small:
            return
        ends = np.cumsum([param.numel() for param in self._small])
        for param, part in zip(self._small, np.split(self._packed, ends[:-1]), strict=True):
            if self._is_own:
                continue
            if param.device.kind == "cpu":
                memory_vector(param.node)[:] = part
            else:
                param.copy_(part.reshape(param.shape))
        del self._packed


class _Watch:
    """The observer of a graph that waits.

    Args:
        arrivals: waits for buckets.
        waits: how many of them must be there after an op.
    """

    def __init__(self, arrivals: Arrivals, waits: Mapping[int, int]):
        self.error: Exception | None = None
        self._arrivals, self._waits = arrivals, waits

    def before(self, ptr: Any) -> bool:
        """Ask for the ops before those that read a bucket."""
        return address(ptr) in self._waits

    def after(self, ptr: Any) -> bool:
        """Wait for what the next op reads."""
        try:
            self._arrivals.wait_for(self._waits.get(address(ptr), 0))
        except Exception as error:  # noqa: BLE001 - the graph's run raises it
            self.error = error
        return self.error is None
