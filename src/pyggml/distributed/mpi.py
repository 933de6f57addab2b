# SPDX-License-Identifier: MIT
"""The ranks of an MPI job."""

from __future__ import annotations

import atexit
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from .. import checks
from ..backend.cores import available_cores, wanted_threads
from ..backend.device import divide_cores, own_gpu
from ..backend.library import ggml_version
from ..backend.threads import start_thread
from ..checks import instance, mapping
from ..errors import DistributedError
from .group import Group
from .launch import import_mpi
from .progress import Progress
from .pulse import Beat, Places, Pulse, say
from .sums import Sums

__all__ = ["MPIGroup", "check_same"]

_T = TypeVar("_T")
# As many bytes as MPI's counts hold.
_PART_BYTES, _STATE = 1 << 30, 7704
_OPS = {"sum": "SUM", "max": "MAX", "min": "MIN"}
# A rank that waits gives its core away: at once for a while, and then for so long.
_SPINS, _SLEEP_S = 500, 1e-4
# Failing ranks wait so long for others that fail as well; then they end the job.
_FAILED, _GRACE_S, _KILL_S = 7701, 2.0, 30.0
_MEETS = 7706
# A rank of which nothing is heard for so long hangs; see the option `rank_timeout`.
_TIMEOUT_S = 40.0


class MPIGroup(Group):
    """All ranks of an MPI job.

    Raises:
        DistributedError: MPI is missing or mixed, or a rank has another version.
    """

    def __init__(self) -> None:
        super().__init__()
        self._mpi: Any = import_mpi()
        self._comm = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self._calls, self._waits = 0, False
        self._sums = Sums(self._mpi, self._comm, self._mpi.COMM_WORLD.Dup())
        serial = self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED
        self._progress = Progress(self._mpi.Request.Testall, serial)
        atexit.register(self._progress.stop)
        # Of their own, so that they wait for nothing and nothing for them.
        own = self._mpi.COMM_WORLD.Dup()
        self._arrivals, self._begun = Sums(self._mpi, own, own), 0
        self.goes_on = self._mpi.Query_thread() >= self._mpi.THREAD_MULTIPLE
        self._arriving = Progress(self._mpi.Request.Testall, self.goes_on)
        atexit.register(self._arriving.stop)
        hosts = self.gather(self.host)
        self.local_rank = hosts[: self.rank].count(self.host)
        self.local_size = hosts.count(self.host)
        self._pulse: Pulse | None = None
        if self.size > 1:
            places = Places(hosts, self.gather(os.getpid()))
            own, abort = self._mpi.COMM_WORLD.Dup(), self._comm.Abort
            self._pulse = Pulse(own, places, self._beat, abort, _TIMEOUT_S)
            start_thread(self._pulse)
            atexit.register(self._finish)
        self._failed = False
        self._show, sys.excepthook = sys.excepthook, self._excepthook
        _share_host(self)
        check_same(
            self,
            {
                "pyggml": _own_version(),
                "ggml": ggml_version(),
                "numpy": np.__version__,
                "python": platform.python_version(),
                "byte order": sys.byteorder,
                "MPI": self._mpi.Get_library_version().split(",")[0],
            },
        )

    def reduce(self, arrays: list[np.ndarray], op: str = "sum") -> None:
        """Reduce arrays in parts that are on their way at the same time."""
        if self.size == 1:
            return
        how = getattr(self._mpi, _OPS[op])
        for array in arrays:
            self._progress.begin(self._sums.plain(array.reshape(-1), None, how))
        self.finish()

    def begin_sum(
        self,
        array: np.ndarray,
        to: int | None = None,
        rounds: bool = False,
        residual: np.ndarray | None = None,
    ) -> None:
        """Begin a sum; it goes on in a thread."""
        if self.size == 1:
            return
        if rounds:
            self._progress.begin(self._sums.rounded(array, to, residual))
        else:
            self._progress.begin(self._sums.plain(array, to, self._mpi.SUM))

    def begin_send(self, array: np.ndarray, src: int) -> None:
        """Begin a broadcast; it goes on in a thread."""
        self._progress.begin(self._sums.send(array, src))

    def begin_arrival(self, array: np.ndarray, src: int) -> int:
        """Begin a broadcast by a communicator and in a thread of its own."""
        self._arriving.begin(self._arrivals.send(array, src))
        self._begun += 1
        return self._begun

    def arrive(self, number: int) -> None:
        """Wait; it is no operation that all ranks take part in."""
        self._wait(lambda: self._arriving.advance(self._begun - number), counts=False)

    def finish(self, most: int = 0) -> None:
        """Wait; only a wait for all counts as an operation, of which ranks do the same."""
        self._wait(lambda: self._progress.advance(most), counts=not most)

    def send_all(self, array: np.ndarray, src: int = 0) -> None:
        """Broadcast an array in parts that MPI can count."""
        self.begin_send(array.reshape(-1), src)
        self.finish()

    def share(self, value: _T, src: int = 0) -> _T:
        """Broadcast an object."""
        import pickle

        data = np.frombuffer(pickle.dumps(value), np.uint8) if self.rank == src else None
        size = np.array([0 if data is None else data.size], np.int64)
        self.send_all(size, src)
        sent = np.empty(int(size[0]), np.uint8) if data is None else data.copy()
        self.send_all(sent, src)
        return value if self.rank == src else pickle.loads(sent.tobytes())

    def gather(self, value: _T) -> list[_T]:
        """Send every rank's object to every rank."""
        return [self.share(value, src) for src in range(self.size)]

    def gather_first(self, value: _T) -> list[_T]:
        """Send every rank's object to rank 0."""
        import pickle

        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self.gather(data.size)
        if self.rank:
            parts = [(data, 0)]
        else:
            parts = [(np.empty(size, np.uint8), rank) for rank, size in enumerate(sizes) if rank]
        move = self._comm.Isend if self.rank else self._comm.Irecv
        requests = [
            move(part[at : at + _PART_BYTES], rank, _STATE)
            for part, rank in parts
            for at in range(0, part.size, _PART_BYTES)
        ]
        self._wait(lambda: self._mpi.Request.Testall(requests))
        return [value, *(pickle.loads(part.tobytes()) for part, rank in parts if rank)]

    def barrier(self) -> None:
        """Wait until every rank is here; the core is free meanwhile."""
        self._wait(self._comm.Ibarrier().Test)

    def meet(self, where: str) -> None:
        """Send each of the others a message, and wait for theirs."""
        others = set(range(self.size)) - {self.rank}
        mark, since = _mark(where), list[float]()
        came = {other: np.zeros_like(mark) for other in others}
        sent = [self._comm.Isend(mark, other, _MEETS) for other in others]

        def are_here() -> bool:
            for other in [other for other in others if self._comm.Iprobe(other, _MEETS)]:
                self._comm.Recv(came[other], other, _MEETS)
                others.remove(other)
            lost = [] if self._pulse is None else sorted(others & self._pulse.elsewhere())
            since[:] = (since or [time.monotonic()]) if lost else []
            if lost and time.monotonic() - since[0] > _GRACE_S:
                raise DistributedError(
                    f"{where}: every rank must call it; an error has ended the last call on rank"
                    f" {self.rank} alone, and rank {lost[0]} still waits in its own, or has ended:"
                    " let the error end the program, which ends the job, or raise it on all ranks"
                )
            return not others and bool(self._mpi.Request.Testall(sent))

        self._wait(are_here, counts=False)
        for other, its in came.items():
            if its.tobytes() != mark.tobytes():
                name = its.tobytes().rstrip(bytes(1)).decode()
                raise DistributedError(
                    f"{where}: every rank must call the same function; rank {other} has called"
                    f" {name} meanwhile: call it on all ranks, in the same order, also after an"
                    " error"
                )

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait, as for operations of MPI."""
        checks.function("wait_until", "is_done", is_done, "takes nothing, returns True or False")
        self._wait(is_done)

    def set_timeout(self, seconds: float) -> None:
        """Let ranks be silent for so long."""
        if self._pulse is not None:
            self._pulse.timeout = seconds

    def _beat(self) -> Beat:
        """Return this rank's sign of life."""
        return Beat(self._calls, self._waits, 0.0, self.doing)

    def _wait(self, is_done: Callable[[], bool], counts: bool = True) -> None:
        """Wait; signals are handled meanwhile, which MPI's own waiting prevents."""
        began, spins = time.perf_counter(), 0
        self._calls += counts
        self._waits = True
        try:
            while not is_done():
                spins += 1
                time.sleep(0 if spins < _SPINS else _SLEEP_S)
        except self._mpi.Exception as error:
            time.sleep(_GRACE_S)  # who looks after the others knows better what happened
            raise DistributedError(
                f"distributed: the connection to another rank broke: {error}"
            ) from error
        finally:
            self._waits = False
            self.waited_s += time.perf_counter() - began

    def _finish(self) -> None:
        """Wait, at the end of the program, for the end of the others; tell of those that left."""
        if self._pulse is None or self._mpi.Is_finalized():
            return
        self.doing = self.doing or "at the end of the program"
        left = self._pulse.leave()
        self._wait(lambda: self._arriving.advance() and left.Test())
        self._pulse.stop()
        self._pulse = None

    def leave(self, message: str, code: int = 1) -> bool:
        """Exchange messages with the others that fail; end the job where some do not."""
        if self._failed or self.size == 1:
            return self.is_first
        self._failed = True
        others = set(range(self.size)) - {self.rank}
        for other in others:
            self._comm.Isend(np.zeros(1, np.int8), other, _FAILED)
        failed, end = set[int](), time.monotonic() + _GRACE_S
        while failed != others and time.monotonic() < end:
            for other in others - failed:
                if self._comm.Iprobe(other, _FAILED):
                    failed.add(other)
            time.sleep(0.01)
        if failed == others:
            return self.is_first
        if failed and min(failed) < self.rank:
            time.sleep(_KILL_S)  # the other ends the job, and this process with it
            os._exit(code)
        say(self.rank, self.size, self.host, self.doing, message)
        if sys.stdout is not None:
            sys.stdout.flush()
        if self._pulse is not None:
            self._pulse.end(code)
        return False

    def _excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """End the job where an error ends this rank."""
        text = "".join(traceback.format_exception(kind, error, trace)).strip()
        if self.leave(text):
            self._show(kind, error, trace)


def _mark(name: str) -> np.ndarray:
    """Return a name as bytes, of which there are always as many."""
    found = np.zeros(32, np.uint8)
    found[: len(name)] = list(name.encode("ascii"))
    return found


def _own_version() -> str:
    """Return the version of pyggml."""
    from importlib import import_module

    return str(import_module(__package__.partition(".")[0]).__version__)


def check_same(group: Group, facts: dict[str, Any]) -> None:
    """Raise, on every rank, where a rank differs from rank 0.

    Args:
        group: the ranks.
        facts: what must be the same, by name: values that can be compared and shown.

    Raises:
        DistributedError: names the rank, its host, what differs and both values.
    """
    instance("check_same", "group", group, Group, "use pyggml.distributed.world()")
    mapping("check_same", "facts", facts)
    if group.size == 1:
        return
    every = group.gather((group.host, facts))
    first = every[0][1]
    for rank, (host, own) in enumerate(every):
        for name in [*first, *(name for name in own if name not in first)]:
            if own.get(name) != first.get(name):
                raise DistributedError(
                    f"distributed: {name} must be the same on every rank; rank {rank} on {host} "
                    f"has {_short(own.get(name))}, rank 0 on {every[0][0]} has "
                    f"{_short(first.get(name))}: start them with the same installation, model, "
                    "options and data"
                )


def _short(value: Any) -> str:
    """Return a value for a message."""
    text = str(value)
    return text if len(text) <= 200 else f"{text[:198]} …"


def _share_host(group: Group) -> None:
    """Divide the host's GPUs and cores between its ranks; OMP_NUM_THREADS tells their threads."""
    own = frozenset(_affinity(0))
    everyone = group.gather((group.host, own))
    own_gpu(group.local_rank)
    if wanted_threads() is not None:
        return
    # mpiexec binds each of two ranks to one core: right for programs of one thread.
    allowed = frozenset(_affinity(os.getppid()))
    share = max(1, len(allowed) // group.local_size)
    if own < allowed and len(own) < share:
        os.sched_setaffinity(0, allowed)
        divide_cores(share)
        return
    sharers = sum(host == group.host and bool(cores & own) for host, cores in everyone)
    divide_cores(max(1, available_cores() // max(1, sharers)))


def _affinity(process: int) -> set[int]:
    """Return the cores that a process may use."""
    try:
        return set(os.sched_getaffinity(process))
    except (AttributeError, OSError):  # no such call, or a process of another container
        return set(range(os.cpu_count() or 1)) if process == 0 else set()
