# SPDX-License-Identifier: MIT
"""What a step of many ranks takes: its recorded events, replayed over a link.

Parameters that a step sends arrive while the next one computes: a step's time is that of a step
after another one.

A message of n bytes takes alpha + n beta, and the sum of n bytes takes n gamma (Thakur et al. 2005,
doi:10.1177/1094342005051521). The algorithms are those that pyggml lets Open MPI's libnbc choose:
Rabenseifner's for sums, a binomial tree for sums to one of two ranks, and for broadcasts a loop up
to four ranks and a binomial tree beyond.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Replayed and measured one after another, without the first.
STEPS = 3
# Of pyggml.distributed.progress: operations under way.
_MOST = 3
# What begins operations, what waits for them, and the order that both belong to: parameters that
# arrive during a forward have one of their own.
_BEGINS = {"sum": 0, "send": 0, "arrival": 1}
_WAITS = {"wait": 0, "arrive": 1}
# Larger messages ask first whether they may come: Open MPI's eager limit for TCP.
EAGER_BYTES = 1 << 16


class Event(NamedTuple):
    """What a rank does after it has computed for a while.

    Args:
        gap_s: seconds of computing before it; of processor time where ranks share cores.
        kind: "sum" or "send", which begin, and "wait" for them; "arrival", a broadcast that the
            next forward awaits by "arrive"; or "end" of the step.
        number: bytes; or how many operations may be left of those that are awaited.
        rank: that gets the sum, or sends; None is every rank.
    """

    gap_s: float
    kind: str
    number: int
    rank: int | None = None


@dataclass(frozen=True)
class Link:
    """The way between ranks.

    Args:
        alpha: seconds of a message, besides those of its bytes.
        small_alpha: of a message up to `EAGER_BYTES`.
        beta: seconds of a byte.
        gamma: seconds in which a byte is added to another.
        cores: that ranks on one machine share; then messages take processor time from those that
            compute. 0 is a network, whose messages take none.
        look_s: seconds from a message's arrival to the rank's looking for it.
        costs: seconds of processor time, mean of the ranks, of an operation and of its bytes, on
            one machine: of a "sum", of a "reduce", which is a sum to one rank, and of a "send".
    """

    alpha: float
    small_alpha: float
    beta: float
    gamma: float = 0.0
    cores: int = 0
    look_s: float = 0.0
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def late_s(self, sizes: Iterable[float]) -> float:
        """Return the sum of alpha over messages that follow each other."""
        return sum(self.alpha if size > EAGER_BYTES else self.small_alpha for size in sizes)


class Phase(NamedTuple):
    """A part of an operation.

    Args:
        lanes: directions of the link that it fills.
        fill_s: for so long.
        late_s: seconds until the next part can begin, after that.
        rounds: messages that follow each other.
    """

    lanes: tuple[str, ...]
    fill_s: float
    late_s: float
    rounds: int


def phases(event: Event, ranks: int, link: Link) -> list[Phase]:
    """Return the parts of an operation, one after another."""
    n, rounds = event.number, math.ceil(math.log2(ranks))
    beta, gamma = link.beta, link.gamma
    part = n * (ranks - 1) / ranks
    halves, whole = link.late_s(n / 2**i for i in range(1, rounds + 1)), link.late_s([n])
    both = ("in 0", "out 0")
    lane = (f"in {event.rank}",) if event.kind == "sum" else (f"out {event.rank}",)
    if event.kind != "sum":
        times = ranks - 1 if ranks <= 4 else rounds
        return [Phase(lane, times * n * beta, rounds * whole, rounds)]
    if ranks == 2 and event.rank is not None:
        return [Phase(lane, n * beta, whole + n * gamma, 1)]
    # A reduce-scatter by halves; then an all-gather by doubles, or the root gathers the parts.
    first = Phase(both, part * beta, halves + part * gamma, rounds)
    return [first, Phase(both if event.rank is None else lane, part * beta, halves, rounds)]


Trace = Sequence[Event]


def replay(traces: Sequence[Trace], ranks: int, link: Link, slower: float = 1.0) -> float:
    """Return the seconds of a step that follows another one.

    Args:
        traces: the events of some ranks; the others do as the last of them.
        ranks: their number.
        link: between them.
        slower: by what the computing is multiplied.
    """
    if ranks == 1:
        return computing(traces[0]) * slower
    if not link.cores:
        return max(_over(trace, ranks, link, slower) for trace in traces)
    given = [*traces, *[traces[-1]] * (ranks - len(traces))][:ranks]
    return _on_one(given, link, slower)


def replay_rounds(
    rounds: Sequence[Sequence[Trace]], ranks: int, link: Link, slower: float = 1.0
) -> float:
    """Return the median of the replays of several rounds: that of their steps, noise included."""
    return statistics.median(replay(traces, ranks, link, slower) for traces in rounds)


def computing(trace: Trace) -> float:
    """Return the seconds that a rank computes."""
    return sum(event.gap_s for event in trace)


def _on_one(traces: Sequence[Trace], link: Link, slower: float) -> float:
    """Replay steps where the ranks share cores: a rank's part of an operation takes its core."""
    parts: list[list[list[float]]] = [[[], []] for _ in traces]
    ends: list[list[float]] = [[0.0] for _ in traces]
    walks = [_walk(*each, parts, link, slower) for each in zip(traces, parts, ends, strict=True)]
    while walks:
        walks = [walk for walk in walks if next(walk, False)]
    busy = [computing(trace) * slower + sum(_part_s(e, link) for e in trace) for trace in traces]
    last = max(end[-1] for end in ends) - max(end[-2] for end in ends)
    return max(last, sum(busy) / min(len(traces), link.cores))


def _walk(
    trace: Trace,
    own: Sequence[list[float]],
    ends: list[float],
    parts: Sequence[Sequence[list[float]]],
    link: Link,
    slower: float,
) -> Iterator[bool]:
    """Replay a rank; yield while it awaits another rank's part of an operation."""
    now = 0.0
    for _ in range(STEPS):
        for event in trace:
            now += event.gap_s * slower
            if event.kind in _BEGINS:
                now += _part_s(event, link)
                own[_BEGINS[event.kind]].append(now)
            elif event.kind in _WAITS:
                order = _WAITS[event.kind]
                awaited = len(own[order]) - event.number
                while min(len(each[order]) for each in parts) < awaited:
                    yield True
                now = max([now, *(each[order][awaited - 1] for each in parts if awaited > 0)])
        ends.append(now)


def _part_s(event: Event, link: Link) -> float:
    """Return the seconds of a rank's part of an operation."""
    if event.kind not in _BEGINS:
        return 0.0
    of_sum = "sum" if event.rank is None else "reduce"
    begin_s, byte_s = link.costs[of_sum if event.kind == "sum" else "send"]
    return begin_s + event.number * byte_s


class _Wire:
    """Operations on a network: of each order a few are under way, one after another on a lane."""

    def __init__(self, ranks: int, link: Link):
        self._ranks, self._link = ranks, link
        self._free: dict[str, float] = {}
        self._begun = [0, 0]
        self._waiting: tuple[deque[tuple[float, Event]], ...] = (deque(), deque())
        self._ends: tuple[list[float], ...] = ([], [])

    def begin(self, now: float, event: Event) -> None:
        """Begin an operation; it starts when there is room."""
        order = _BEGINS[event.kind]
        self._begun[order] += 1
        self._waiting[order].append((now, event))

    def left(self, order: int, most: int) -> float:
        """Return when so many operations of an order are left."""
        awaited = self._begun[order] - most
        while len(self._ends[order]) < awaited:
            self._start()
        return self._ends[order][awaited - 1] if awaited > 0 else 0.0

    def _start(self) -> None:
        """Start the operation that can start first."""
        now, order = min(
            (max(waiting[0][0], ends[-_MOST] if len(ends) >= _MOST else 0.0), order)
            for order, (waiting, ends) in enumerate(zip(self._waiting, self._ends, strict=True))
            if waiting
        )
        _, event = self._waiting[order].popleft()
        for lanes, fill_s, late_s, rounds in phases(event, self._ranks, self._link):
            start = max(now, *(self._free.get(lane, 0.0) for lane in lanes))
            for lane in lanes:
                self._free[lane] = start + fill_s
            now = start + fill_s + late_s + rounds * self._link.look_s
        self._ends[order].append(max([now, *self._ends[order][-1:]]))


def _over(events: Trace, ranks: int, link: Link, slower: float) -> float:
    """Replay steps over a network, which sends while the ranks compute."""
    now, wire, ends = 0.0, _Wire(ranks, link), [0.0]
    for _ in range(STEPS):
        for event in events:
            now += event.gap_s * slower
            if event.kind in _BEGINS:
                wire.begin(now, event)
            elif event.kind in _WAITS:
                now = max(now, wire.left(_WAITS[event.kind], event.number))
        ends.append(now)
    return ends[-1] - ends[-2]


def stage_three(trace: Trace) -> list[Event]:
    """Return ZeRO stage 3 after stage 2: parameters are sent for the forward and the backward.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 7.2: 1.5 times the bytes.
    """
    found: list[Event] = []
    for event in trace:
        if event.kind == "arrive":  # counts what was sent twice
            found.append(event._replace(number=2 * event.number))
        else:
            found += [event] * (2 if event.kind == "arrival" else 1)
    return found


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Return alpha and beta of messages, by least squares of the relative errors."""
    import numpy as np

    rows = np.array([[1.0, size] for size in sizes]) / np.array(seconds)[:, None]
    alpha, beta = np.linalg.lstsq(rows, np.ones(len(sizes)), rcond=None)[0]
    return max(0.0, float(alpha)), max(0.0, float(beta))


def read_traces(rounds: Iterable[Iterable[Iterable[Sequence[Any]]]]) -> list[list[Trace]]:
    """Return the traces of rounds that came through JSON."""
    return [[[Event(*event) for event in trace] for trace in ranks] for ranks in rounds]
