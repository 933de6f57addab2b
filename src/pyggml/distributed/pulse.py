# SPDX-License-Identifier: MIT
"""A thread of each rank that finds ranks which died, hang, or left before the others."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from ..backend.threads import start_thread
from .witness import Witness

__all__ = ["MARK", "Beat", "Places", "Pulse", "say"]

# The variable that names a file which the ranks of a failing job make.
MARK = "PYGGML_FAILED"

_BEAT, _LEFT, _ENDS = 7702, 7703, 7705
# The thread wakes so often, and tells the others so often that it lives.
_TICK_S, _BEAT_S = 0.05, 1.0
# A rank that computes for less than this in each second does nothing.
_IDLE_S = 0.02
# So much later each further rank tells what it sees, unless another one has ended the job.
_TURN_S, _KILL_S = 0.7, 5.0
# The others hear so long before it that the job ends, and say nothing themselves.
_WARNING_S = 0.3
# mpiexec ends in order if it finds by itself that a host is lost; it has so long.
_LOST_S = 12.0


class Beat(NamedTuple):
    """A sign of life.

    Args:
        calls: operations of the group that the rank has begun.
        waits: it is in one of them.
        busy_s: processor time of its process.
        doing: what it is at.
    """

    calls: int = 0
    waits: bool = True
    busy_s: float = 0.0
    doing: str = ""


class Places(NamedTuple):
    """The hosts and the processes of all ranks.

    Args:
        hosts: by rank.
        processes: by rank, their numbers on their hosts.
    """

    hosts: list[str]
    processes: list[int]


class Pulse(threading.Thread):
    """Tells the others that this rank lives, and ends the job when another one does not.

    Rank 0 listens to all ranks, and they to rank 0. A rank hangs when nothing is heard of it for
    `timeout` seconds, or when it computes nothing for as long while others wait for it. Ranks of
    the same host are watched by the numbers of their processes.

    Args:
        comm: a communicator of its own.
        places: of the ranks.
        state: returns the sign of life of this rank.
        abort: ends the job.
        timeout: seconds; 0 waits for ever.
    """

    def __init__(
        self,
        comm: Any,
        places: Places,
        state: Callable[[], Beat],
        abort: Callable[[int], None],
        timeout: float,
    ):
        super().__init__(name="pyggml-pulse", daemon=True)
        self.timeout = timeout
        self._comm, self._places, self._state, self._end = comm, places, state, abort
        self._rank, self._size = comm.Get_rank(), comm.Get_size()
        others = [rank for rank in range(self._size) if rank != self._rank]
        host = places.hosts[self._rank]
        self._near = [rank for rank in others if places.hosts[rank] == host]
        self._heard = others if self._rank == 0 else [0]
        self._beats = {rank: Beat() for rank in self._heard}
        self._silent = dict.fromkeys(self._heard, 0.0)
        self._idle = dict.fromkeys(self._heard, 0.0)
        self._left: dict[int, int] = {}
        self._leaves = self._ends = False
        self._done, self._told = threading.Event(), threading.Lock()
        self._sent: dict[int, Any] = {}
        # A rank that is alone on its host has no neighbour to tell of its death.
        self._witness = None if self._near else Witness(f"rank {self._rank} of {self._size}", host)

    def run(self) -> None:
        """Watch until `stop`."""
        last = time.monotonic()
        due = last
        while not self._done.wait(_TICK_S):
            now = time.monotonic()
            # A machine that slept, or a thread that did not get to run, has heard nobody meanwhile.
            passed, last = min(now - last, 4 * _TICK_S), now
            with suppress(RuntimeError):  # MPI's errors: a lost connection is heard as silence
                self._listen()
            if self._ends:
                continue
            self._judge_dead()
            self._judge_left()
            for rank in self._heard:
                self._silent[rank] += passed
            self._judge_silent()
            if now >= due:
                due = now + _BEAT_S
                with suppress(RuntimeError):
                    self._send()

    def leave(self) -> Any:
        """Tell the others that this rank takes part in nothing more.

        Returns:
            A request that is done when all ranks have left.
        """
        self._leaves = True
        for rank in range(self._size):
            if rank != self._rank:
                self._sent[-1 - rank] = self._comm.isend(self._state().calls, rank, _LEFT)
        return self._comm.Ibarrier()

    def stop(self) -> None:
        """End the thread."""
        self._done.set()
        self.join()
        if self._witness is not None:
            self._witness.end()

    def _send(self) -> None:
        """Send a beat to those that listen, unless the last one is still on its way."""
        calls, waits, _, doing = self._state()
        mine = Beat(calls, waits, time.process_time() - time.thread_time(), doing)
        if self._witness is not None:
            self._witness.tell(doing)
        for rank in self._heard:
            if rank not in self._sent or self._sent[rank].Test():
                self._sent[rank] = self._comm.isend(tuple(mine), rank, _BEAT)

    def _listen(self) -> None:
        """Take what has come."""
        if self._comm.iprobe(tag=_ENDS):
            self._ends = True
            if self._witness is not None:
                self._witness.end()
        for tag, source in ((_BEAT, self._heard), (_LEFT, range(self._size))):
            for rank in source:
                while rank != self._rank and self._comm.iprobe(rank, tag):
                    value = self._comm.recv(None, rank, tag)
                    if tag == _LEFT:
                        self._left[rank] = value
                    else:
                        self._hear(rank, Beat(*value))

    def _hear(self, rank: int, beat: Beat) -> None:
        """Note a beat, and for how long its rank has done nothing."""
        before = self._beats[rank]
        works = beat.busy_s - before.busy_s > _IDLE_S or beat.calls != before.calls
        self._idle[rank] = 0.0 if works or beat.waits else self._idle[rank] + _BEAT_S
        self._silent[rank], self._beats[rank] = 0.0, beat

    def elsewhere(self) -> set[int]:
        """Return the ranks that wait in an operation which this one has not begun, or have left."""
        calls = self._state().calls
        ahead = {r for r, beat in self._beats.items() if beat.waits and beat.calls > calls}
        return ahead | set(self._left)

    def _judge_dead(self) -> None:
        """End the job where a rank of this host has died."""
        near = [rank for rank in self._near if rank not in self._left]
        gone = [rank for rank in near if not _lives(self._places.processes[rank])]
        if gone:
            living = {self._rank, *self._near} - set(gone)
            self.tell(gone, "the process died", sorted(living).index(self._rank))

    def _judge_left(self) -> None:
        """End the job where this rank waits for one that takes part in nothing more."""
        mine = self._state()
        gone = [rank for rank, calls in self._left.items() if mine.waits and calls < mine.calls]
        if gone and not self._leaves:
            stay = [rank for rank in range(self._size) if rank not in self._left]
            message = "the program ended there, and other ranks wait for it (sys.exit in one rank?)"
            self.tell(gone, message, stay.index(self._rank))

    def _judge_silent(self) -> None:
        """End the job where a rank hangs."""
        if not self.timeout:
            return
        limit, turn = self.timeout, max(0, self._rank - 1)
        watched = [rank for rank in self._heard if rank not in self._left]
        gone = [rank for rank in watched if self._silent[rank] > limit]
        if gone:
            message = f"no sign of life for {limit:g} s; it hangs, or its host is gone"
            lost = [rank for rank in gone if rank not in self._near]
            self.tell(gone, message, turn, _LOST_S if lost else 0.0)
        mine = self._state()
        known = {**self._beats, self._rank: mine}
        furthest = max((beat.calls for beat in known.values() if beat.waits), default=0)
        gone = [r for r in watched if self._idle[r] > limit and known[r].calls < furthest]
        if gone:
            self.tell(
                gone, f"it has done nothing for {limit:g} s while other ranks wait for it", turn
            )

    def tell(self, ranks: list[int], message: str, turn: int, wait_s: float = 0.0) -> None:
        """Say what happened to other ranks, and end the job.

        Args:
            ranks: the ranks.
            message: what happened to them.
            turn: so many ranks may say it before this one, and end the job.
            wait_s: seconds from the message to the end of the job.
        """
        end = time.monotonic() + turn * _TURN_S
        while time.monotonic() < end:
            time.sleep(_TICK_S)
            with suppress(RuntimeError):
                self._listen()
            if self._ends or self._done.is_set():
                return
        with self._told:
            mine = self._state()
            for rank in ranks:
                beat = self._beats.get(rank)
                doing = beat.doing if beat is not None and beat.doing else mine.doing
                say(rank, self._size, self._places.hosts[rank], doing, message)
            self._mark()
            if self._witness is not None:
                self._witness.end()
            time.sleep(wait_s)
            self.end()

    def end(self, code: int = 1) -> None:
        """End the job; a process that cannot even do that ends itself.

        Args:
            code: exit code of the job.
        """
        killer = threading.Timer(_KILL_S, os._exit, (code,))
        killer.daemon = True
        with suppress(RuntimeError):
            start_thread(killer)
        self._mark()
        if self._witness is not None:
            self._witness.end()
        with suppress(RuntimeError):
            for rank in range(self._size):
                if rank != self._rank:
                    self._sent[-1 - self._size - rank] = self._comm.isend(None, rank, _ENDS)
        time.sleep(_WARNING_S)
        self._end(code)
        if killer.ident is not None:
            killer.join()  # the end of the job comes first

    def _mark(self) -> None:
        """Let `pyggml launch` know that the job fails, whatever becomes of mpiexec."""
        with suppress(OSError, KeyError), open(os.environ[MARK], "w", encoding="utf-8"):
            pass


def say(rank: int, size: int, host: str, doing: str, message: str) -> None:
    """Print what happened to a rank.

    Args:
        rank: its number.
        size: of the group.
        host: its host.
        doing: what it was at.
        message: what happened.
    """
    place = f", {doing}" if doing else ""
    stream = sys.__stderr__ or sys.stderr
    if stream is not None:
        print(f"rank {rank} of {size} on {host}{place}: {message}", file=stream, flush=True)


def _lives(process: int) -> bool:
    """Return whether a process of this host runs; one that awaits its burial does not."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user, or there is no such call
        pass
    return True
