# SPDX-License-Identifier: MIT
"""Handlers of signals run after a block, and are as they were then."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from pyggml.backend.undivided import Undivided

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

if sys.platform != "win32":
    FIRST, SECOND, OTHER = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1


class Alarm(Exception):
    """What a handler raises."""


@pytest.fixture(autouse=True)
def done() -> Iterator[list[str]]:
    """What was done, in order; the handlers note theirs."""
    found: list[str] = []

    def note(signum: int, frame: FrameType | None) -> None:
        found.append(signal.Signals(signum).name)

    before = {signum: signal.signal(signum, note) for signum in (FIRST, SECOND, OTHER)}
    yield found
    for signum, handler in before.items():
        signal.signal(signum, handler)


def send(*signums: int) -> None:
    for signum in signums:
        signal.raise_signal(signum)


def test_handlers_run_after_the_outermost_block(done: list[str]) -> None:
    with Undivided():
        with Undivided(), Undivided(later=True):
            send(FIRST)
        done.append("inner")
        send(SECOND)
        done.append("outer")
    assert done == ["inner", "outer", "SIGINT", "SIGTERM"]
    send(SECOND)
    assert done[4:] == ["SIGTERM"]


def test_handlers_wait_from_a_block_inside_on(done: list[str]) -> None:
    with Undivided(later=True):
        send(FIRST)
        done.append("before")
        with Undivided():
            send(SECOND)
        done.append("after")
        send(FIRST)
        done.append("end")
    assert done == ["SIGINT", "before", "after", "end", "SIGINT", "SIGTERM"]


def test_blocks_may_end_in_any_order_and_be_used_again(done: list[str]) -> None:
    first, second = Undivided(), Undivided()
    for _ in range(2):
        first.__enter__()
        second.__enter__()
        send(FIRST)
        first.__exit__(None, None, None)
        done.append("first")
        second.__exit__(None, None, None)
    assert done == ["first", "SIGINT"] * 2


def test_the_third_request_to_stop_does_not_wait(done: list[str]) -> None:
    with Undivided():
        send(FIRST, SECOND)
        done.append("two")
        send(FIRST)
        done.append("three")
    assert done == ["two", "SIGINT", "three", "SIGINT", "SIGTERM"]


def test_a_block_that_hangs_can_be_ended(done: list[str]) -> None:
    """Also where the first handler to run raises, and others wait."""

    def fail(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    signal.signal(FIRST, fail)
    with pytest.raises(Alarm), Undivided():  # noqa: PT012
        send(OTHER, SECOND, SECOND)
        done.append("waits")
        send(FIRST)
        done.append("never")
    assert done == ["waits", "SIGUSR1", "SIGTERM"]


def test_other_signals_wait_however_often_they_come(done: list[str]) -> None:
    with Undivided():
        send(*[OTHER] * 10)
        done.append("block")
    assert done == ["block", "SIGUSR1"]


def test_a_handler_that_raises_takes_no_other_with_it(done: list[str]) -> None:
    def fail(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    signal.signal(FIRST, fail)
    with pytest.raises(Alarm), Undivided():  # noqa: PT012
        send(FIRST, SECOND)
        done.append("block")
    assert done == ["block", "SIGTERM"]
    assert signal.getsignal(FIRST) is fail


def test_what_the_block_sets_stays(done: list[str]) -> None:
    def own(signum: int, frame: FrameType | None) -> None:
        done.append("own")

    with Undivided():
        signal.signal(FIRST, own)
        signal.signal(SECOND, signal.SIG_IGN)
    send(FIRST, SECOND)
    assert done == ["own"]


def test_handlers_of_other_libraries_stay(done: list[str], tmp_path: Path) -> None:
    """The system's handler is put back, whoever has set it; Python knows of its own alone."""
    with (tmp_path / "stacks").open("w+") as stacks:
        faulthandler.register(OTHER, stacks, chain=True)
        try:
            for _ in range(2):
                with Undivided():
                    send(OTHER)
                    assert done == []
                assert done.pop() == "SIGUSR1"
            send(OTHER)
        finally:
            faulthandler.unregister(OTHER)
        stacks.seek(0)
        assert stacks.read().count("Current thread") == 3


def test_other_threads_are_left_alone(done: list[str]) -> None:
    inside, end = threading.Event(), threading.Event()

    def work() -> None:
        with Undivided():
            inside.set()
            end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    send(FIRST)
    assert done == ["SIGINT"]
    end.set()
    thread.join()


def test_two_counts_stay_together() -> None:
    """A handler that raises at any time finds both counted, or none."""
    counts, raised = [0, 0], 0

    def fail(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, fail)
    try:
        while raised < 200:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5)
                while True:
                    with Undivided():
                        counts[0] += 1
                        counts[1] += 1
            except Alarm:
                raised += 1
            assert counts[0] == counts[1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_in_no_block(done: list[str]) -> None:
    """It ends at the first SIGTERM, as `multiprocessing` asks it to; the parent's signals wait."""
    signal.signal(SECOND, signal.default_int_handler)
    with Undivided():
        send(FIRST)
        child = os.fork()
        if not child:
            try:
                signal.raise_signal(SECOND)
                time.sleep(60.0)
            except KeyboardInterrupt:
                os._exit(7 if done == [] else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert done == []
    assert done == ["SIGINT"]
