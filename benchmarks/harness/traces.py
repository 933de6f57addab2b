# SPDX-License-Identifier: MIT
"""Training steps of real ranks, timed; and what a rank of a larger group would begin and await."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pyggml import distributed
from pyggml.distributed import Group
from pyggml.distributed.progress import Progress

from .cluster import STEPS, Event
from .model import BETAS, CLIP, EPS, LR, WEIGHT_DECAY, Spec, batch

Clock = Callable[[], float]


class Looks:
    """A thread that looks for messages, as it does while operations are under way."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._comm, self._is_on = MPI.COMM_SELF.Dup(), False
        self._progress = Progress(MPI.Request.Testall, threaded=True)

    def switch(self, on: bool) -> None:
        """Begin to await a message, or send it."""
        if on and not self._is_on:
            self._progress.begin(self._await())
        elif self._is_on and not on:
            self._comm.Send(np.zeros(1, np.int8), 0)
            while not self._progress.advance():
                time.sleep(1e-4)
        self._is_on = on

    def _await(self) -> Iterator[list[Any]]:
        """Yield the request of a message."""
        yield [self._comm.Irecv(np.zeros(1, np.int8), 0)]


class Recorder(Group):
    """A rank of a group that sends nothing, and notes what would be sent and when.

    Args:
        size: of the group.
        rank: in it.
        looks: whether threads look for messages while operations would be under way; needs MPI.
        clock: of the seconds that are noted.
    """

    goes_on = True

    def __init__(
        self, size: int, rank: int, looks: bool = False, clock: Clock = time.perf_counter
    ) -> None:
        super().__init__()
        self._clock = clock
        self.rank, self.size = rank, size
        self.events: list[Event] = []
        self._last = clock()
        self._begun, self._arrived = 0, 0
        self._sums, self._arrivals = (Looks(), Looks()) if looks else (None, None)

    def start(self) -> None:
        """Forget what was noted."""
        self._look(self._arrivals, self._begun > self._arrived)
        self.events, self._last = [], self._clock()

    def end(self) -> None:
        """Note the end of a step; other programs of this process run before the next one."""
        self.note("end", 0)
        self._look(self._arrivals, False)

    def note(self, kind: str, number: int, rank: int | None = None) -> None:
        """Note an event."""
        gap_s = self._clock() - self._last
        self.events.append(Event(gap_s, kind, number, rank))
        self._last = self._clock()

    def _look(self, looks: Looks | None, on: bool) -> None:
        """Let a thread look, or not; that takes no time of the step."""
        if looks is not None:
            looks.switch(on)
        self._last = self._clock()

    def reduce(self, arrays: list[np.ndarray], op: str = "sum") -> None:
        """Note sums that are awaited."""
        for array in arrays:
            self.begin_sum(array)
        self.finish()

    def begin_sum(
        self,
        array: np.ndarray,
        to: int | None = None,
        rounds: bool = False,
        residual: np.ndarray | None = None,
    ) -> None:
        """Note a sum."""
        self.note("sum", array.nbytes, to)
        self._look(self._sums, True)

    def begin_send(self, array: np.ndarray, src: int) -> None:
        """Note a broadcast."""
        self.note("send", array.nbytes, src)
        self._look(self._sums, True)

    def begin_arrival(self, array: np.ndarray, src: int) -> int:
        """Note a broadcast that the next forward awaits."""
        self.note("arrival", array.nbytes, src)
        self._begun += 1
        self._look(self._arrivals, True)
        return self._begun

    def arrive(self, number: int) -> None:
        """Note the wait for a broadcast: those after it may still be under way."""
        if number > self._arrived:
            self._arrived = number
            self.note("arrive", self._begun - number)
            self._look(self._arrivals, self._begun > number)

    def finish(self, most: int = 0) -> None:
        """Note a wait."""
        self.note("wait", most)
        if not most:
            self._look(self._sums, False)

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each rank, as if all had the same."""
        return [value] * self.size


def make_step(spec: Spec, group: Group, zero: int) -> Callable[[], None]:
    """Return a function that does one step of a rank."""
    import pyggml as pg
    from pyggml.models import GPT2, GPT2Config
    from pyggml.optim import AdamW
    from pyggml.train import TrainStep
    from pyggml.train.exchange import Exchange

    pg.seed(0)
    shape = {"n_layer": spec.layers, "n_head": spec.heads, "n_embd": spec.embd}
    model = GPT2(GPT2Config(vocab_size=spec.vocab, context=spec.seq, **shape))
    optimizer = AdamW(model, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
    exchange = Exchange(group, optimizer, zero=zero) if group.size > 1 else None
    step = TrainStep(model, optimizer, CLIP, group=group, exchange=exchange)
    data = batch(spec)
    return lambda: step([data]) and None


def make_rounds(spec: Spec, group: Group, every: int) -> Callable[[], None]:
    """Return a function that does the steps of DiLoCo up to an average, and that average."""
    import pyggml as pg
    from pyggml.distributed.local import LocalSteps
    from pyggml.models import GPT2, GPT2Config
    from pyggml.optim import AdamW
    from pyggml.train import TrainStep

    pg.seed(0)
    shape = {"n_layer": spec.layers, "n_head": spec.heads, "n_embd": spec.embd}
    model = GPT2(GPT2Config(vocab_size=spec.vocab, context=spec.seq, **shape))
    optimizer = AdamW(model, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
    step, data = TrainStep(model, optimizer, CLIP), batch(spec)
    local = LocalSteps(group, dict(model.named_parameters()))

    def run() -> None:
        for _ in range(every):
            step([data])
        local.sync(0.0)

    return run


Maker = Callable[[Group], Callable[[], None]]


def compare(
    make: Maker | None,
    noted: Sequence[tuple[Maker, int]],
    rounds: int,
    clock: Clock = time.perf_counter,
) -> tuple[list[float], list[list[list[list[Event]]]]]:
    """Time the ranks' steps, and note the events of the ranks of other groups.

    Args:
        make: makes the step of a rank that there is; None times nothing.
        noted: what makes the step of a rank, and the size of its group; each process is some of
            these ranks, and one by itself is rank 0.
        rounds: steps of each; all take turns.
        clock: of what is noted.

    Returns:
        Seconds of a step that follows another one, for each round; and for each of `noted` the
        events of its ranks, in each round.
    """
    group = distributed.init()
    own = None if make is None else make(group)
    recorders: list[tuple[int, Recorder, Callable[[], None]]] = []
    for number, (other, size) in enumerate(noted):
        for rank in range(group.rank, size, group.size) if group.size > 1 else (0,):
            recorder = Recorder(size, rank, looks=True, clock=clock)
            recorders.append((number, recorder, other(recorder)))
    took: list[float] = []
    runs: list[list[list[Event]]] = [[] for _ in recorders]
    for turn in range(rounds + 1):  # the first one records graphs
        if own is not None:
            group.barrier()
            own()  # what it sends is still on its way when the next one begins
            began = time.perf_counter()
            for _ in range(STEPS - 1):
                own()
            seconds = (time.perf_counter() - began) / (STEPS - 1)
            took += [max(group.gather(seconds))] if turn else []
        for (_, recorder, step), kept in zip(recorders, runs, strict=True):
            group.barrier()
            recorder.start()
            step()
            recorder.end()
            if turn:
                kept.append(recorder.events)
        group.barrier()
    mine = [(number, each) for (number, *_), each in zip(recorders, runs, strict=True)]
    found: list[list[list[list[Event]]]] = [[[] for _ in range(rounds)] for _ in noted]
    for number, kept in (each for rank in group.gather(mine) for each in rank):
        for ranks, events in zip(found[number], kept, strict=True):
            ranks.append(events)
    return took, found


# Of the arrays that operations take in turn: no cache holds them, as none holds a step's gradients.
_POOL_BYTES = 1 << 27


def measure_link(sizes: list[int], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of messages from rank 0 to rank 1, of additions, and of operations.

    The operations are sums, sums to one rank ("reduce"), and broadcasts ("send"): as many as ranks,
    one to or from each, under way together as in a step; the time of one. Each takes another array.
    """
    group = distributed.init()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    pool, other = (np.ones(n // 4, np.float32) for n in (_POOL_BYTES, max(sizes)))
    at = 0

    def array(size: int) -> np.ndarray:
        nonlocal at
        at = at if at + size // 4 <= pool.size else 0
        at += size // 4
        return pool[at - size // 4 : at]

    def exchange(size: int) -> None:
        for source in (0, 1) if group.rank < 2 else ():
            if group.rank == source:
                comm.Send(array(size), 1 - source)
            else:
                comm.Recv(array(size), source)

    def add(size: int) -> None:
        into = array(size)
        np.add(into, other[: size // 4], out=into)

    def reduce(size: int, to: Sequence[int | None]) -> None:
        for rank in to:
            group.begin_sum(array(size), rank)
        group.finish()

    def send(size: int) -> None:
        for rank in range(group.size):
            group.begin_send(array(size), rank)
        group.finish()

    kinds: dict[str, tuple[Callable[[int], None], int]] = {
        "message": (exchange, 2),
        "add": (add, 1),
        "sum": (partial(reduce, to=[None] * group.size), group.size),
        "reduce": (partial(reduce, to=range(group.size)), group.size),
        "send": (send, group.size),
    }
    found: dict[str, list[float]] = {"size": [float(size) for size in sizes]}
    for kind, (run, times) in kinds.items():
        found[kind] = []
        for size in sizes:
            took = []
            for _ in range(rounds + 1):
                group.barrier()
                began = time.perf_counter()
                run(size)
                took.append((time.perf_counter() - began) / times)
            found[kind].append(max(group.gather(statistics.median(took[1:]))))
    return found
