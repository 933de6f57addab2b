# SPDX-License-Identifier: MIT
"""Parameters that a rank holds only while ops read them (ZeRO stage 3, FSDP)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ...backend.headers import address
from ...backend.memory import release_pages
from ...distributed import Group
from ...errors import DistributedError
from ...graph import Graph
from ...graph.observers import observe
from ...tensors import Tensor
from ...tensors.storage import memory_vector

__all__ = ["Windows"]

# So many parameters are on their way beside those that ops read.
_AHEAD = 2


class Windows:
    """Brings each parameter to the ranks that do not own it, for as long as a graph reads it.

    A parameter keeps its address, so graphs know nothing of this: its owner sends it to where it
    lies on the other ranks, right before the first op that reads it, and after the last one the
    others give the pages of its memory back to the system. The backward gets it once more. While
    ops read one, the next ones are on their way. Every rank sends and receives in the same order,
    that of rank 0's first step, whatever its own graphs need.

    At first the parameters are whole on every rank: the first step drops those of other ranks.

    Args:
        group: the ranks, whose arrivals go on while they compute.
        params: on the CPU, each of many pages.
        owners: the rank that updates each.

    Attributes:
        is_whole: whether all parameters are in memory, on every rank.
    """

    def __init__(self, group: Group, params: Sequence[Tensor], owners: Sequence[int]):
        self.is_whole = True
        self._group, self._params, self._owners = group, params, owners
        self._others = [i for i, owner in enumerate(owners) if owner != group.rank]
        self._order: list[int] | None = None
        self._schedules: WeakKeyDictionary[Graph, _Schedule] = WeakKeyDictionary()
        self._visits: list[int] = []
        self._begun: list[int] = []
        self._arrived = 0

    def settle_order(self, graph: Graph) -> None:
        """Choose, once, the order in which parameters come: that of rank 0's step.

        Args:
            graph: of a step.
        """
        if self._order is None:
            self._order = self._group.share(self._order_of(graph))

    @contextmanager
    def providing(self, graph: Graph | None, trains: bool) -> Iterator[None]:
        """Bring the parameters to a graph that runs in the block; every rank enters it.

        Args:
            graph: of a step or of an evaluation; None runs none, and lets the others do so.
            trains: whether the graphs of the ranks have a backward.
        """
        if self.is_whole and not trains:
            yield
            return
        self.drop()
        assert self._order is not None
        self._visits = self._order if trains else self._order[: len(self._params)]
        self._begun, self._arrived = [], 0
        self._mark(None)
        try:
            if graph is None:
                yield
            else:
                schedule = self._schedule(graph, self._visits)
                self.need(schedule.first)
                with observe(lambda _: _Watch(self, schedule)):
                    yield
        finally:
            for visit in range(self._arrived, len(self._visits)):
                self.need(visit + 1)
                self.leave([visit])
            self.drop()

    def need(self, count: int) -> None:
        """Wait until parameters are there, and let the next ones set off.

        Args:
            count: number of visits, from the first.
        """
        for visit in range(self._arrived, count):
            for number in self._visits[len(self._begun) : visit + 1 + _AHEAD]:
                self._begun.append(self._begin(number))
            self._group.arrive(self._begun[visit])
            self._arrived += 1

    def leave(self, visits: Sequence[int]) -> None:
        """Give back the memory of parameters, unless their next visit has begun.

        Args:
            visits: that are over.
        """
        for visit in visits:
            number = self._visits[visit]
            if number not in self._visits[visit + 1 : len(self._begun)]:
                self._drop(number)

    def drop(self) -> None:
        """Give back the memory of all parameters of other ranks."""
        for number in self._others:
            self._drop(number)
        self._mark(self._refuse)
        self.is_whole = False

    def gather(self) -> None:
        """Let every rank hold all parameters; every rank calls it."""
        if not self.is_whole:
            self._visits, self._begun, self._arrived = list(range(len(self._params))), [], 0
            self.need(len(self._visits))
            self._mark(None)
            self.is_whole = True

    def bring(self) -> None:
        """Let rank 0 hold all parameters until it drops them; every rank calls it."""
        self._visits, self._begun, self._arrived = list(range(len(self._params))), [], 0
        for visit in self._visits:
            self.need(visit + 1)
            if not self._group.is_first:
                self._drop(visit)
        if self._group.is_first:
            self._mark(None)

    def spared_bytes(self, graph: Graph) -> int:
        """Return the bytes of parameters that this rank never holds at once.

        Args:
            graph: of a step.
        """
        order = self._order or self._order_of(graph)
        spans, others = self._spans(graph, order), set(self._others)
        most = 0
        for visit, (need, _) in enumerate(spans):
            begun = range(min(len(order), visit + 1 + _AHEAD))
            held = {order[each] for each in begun if spans[each][1] >= need} & others
            most = max(most, sum(self._params[number].nbytes for number in held))
        return sum(self._params[number].nbytes for number in others) - most

    def _begin(self, number: int) -> int:
        """Begin to send a parameter; return what to wait for."""
        vector = memory_vector(self._params[number].node)
        return self._group.begin_arrival(vector, self._owners[number])

    def _drop(self, number: int) -> None:
        """Give back the memory of a parameter of another rank."""
        if self._owners[number] != self._group.rank:
            vector = memory_vector(self._params[number].node)
            release_pages(vector.ctypes.data, vector.nbytes)

    def _mark(self, pending: Any) -> None:
        """Tell the memory of the others' parameters what is to be done before it is used."""
        for number in self._others:
            self._params[number].buffer.pending = pending

    def _refuse(self) -> None:
        """Raise, as a parameter is asked for that is not there."""
        raise DistributedError(
            "Trainer: with `zero` 3 a rank holds parameters of other ranks only while a step or an "
            "evaluation needs them; got a use of one between steps: use the model after fit(), "
            "read its checkpoints, or train with `zero` 2"
        )

    def _order_of(self, graph: Graph) -> list[int]:
        """Return the visits of a step: all parameters in the forward, those of the backward."""
        uses, end = graph.readers(self._params), graph.n_forward
        firsts = [(own or [graph.n_nodes])[0] for own in uses]
        order = sorted(range(len(uses)), key=lambda i: (firsts[i], i))
        needs = [firsts[i] for i in order]
        again = [next((use for use in own if use >= end), -1) for own in uses]
        twice = [i for i in order if firsts[i] < end <= again[i]]
        for number in sorted(twice, key=lambda i: (again[i], i)):
            last = max(use for use in uses[number] if use < end)
            # What has hardly left when it sets off again stays.
            stays = len(order) - order.index(number) <= _AHEAD + 1 or needs[-_AHEAD] <= last
            if not stays:
                order.append(number)
                needs.append(again[number])
        return order

    def _spans(self, graph: Graph, order: Sequence[int]) -> list[tuple[int, int]]:
        """Return for each visit the places of the first and the last op that it is for."""
        uses, end, count = graph.readers(self._params), graph.n_forward, len(self._params)
        twice = set(order[count:])
        spans = list[tuple[int, int]]()
        following = graph.n_nodes
        for visit in reversed(range(len(order))):
            own = uses[order[visit]]
            if order[visit] in twice:
                own = [use for use in own if (use >= end) == (visit >= count)]
            spans.append((own[0], own[-1]) if own else (following, following))
            following = spans[-1][0]
        return spans[::-1]

    def _schedule(self, graph: Graph, order: Sequence[int]) -> _Schedule:
        """Return what is to be done after which op, kept with the graph."""
        if graph not in self._schedules:
            headers, made = graph.headers, _Schedule(0, {}, {})
            for visit, (need, last) in enumerate(self._spans(graph, order)):
                if need == 0:
                    made.first = visit + 1
                elif need < len(headers):
                    made.needs[address(headers[need - 1])] = visit + 1
                if last < len(headers):
                    made.leaves.setdefault(address(headers[last]), []).append(visit)
            self._schedules[graph] = made
        return self._schedules[graph]


@dataclass
class _Schedule:
    """The ops of a graph at which parameters come and go.

    Args:
        first: visits that its first op needs.
        needs: visits that the op after another one needs, by that one's header's address.
        leaves: visits that are over after an op.
    """

    first: int
    needs: dict[int, int]
    leaves: dict[int, list[int]]


class _Watch:
    """The observer of a graph whose parameters come and go.

    Args:
        windows: brings them.
        schedule: of the graph.
    """

    def __init__(self, windows: Windows, schedule: _Schedule):
        self.error: Exception | None = None
        self._windows, self._schedule = windows, schedule

    def before(self, ptr: Any) -> bool:
        """Ask for the ops after which parameters come or go."""
        at = address(ptr)
        return at in self._schedule.needs or at in self._schedule.leaves

    def after(self, ptr: Any) -> bool:
        """Drop what is not needed any more, and wait for what the next op reads."""
        at = address(ptr)
        try:
            self._windows.leave(self._schedule.leaves.get(at, ()))
            self._windows.need(self._schedule.needs.get(at, 0))
        except Exception as error:  # noqa: BLE001 - the graph's run raises it
            self.error = error
        return self.error is None
