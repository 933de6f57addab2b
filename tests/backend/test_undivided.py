# SPDX-License-Identifier: MIT
"""Handlers of signals run after a block, each once, and are themselves again then."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from pyggml.backend.undivided import Undivided

FIRST, SECOND = signal.SIGINT, signal.SIGTERM


class Alarm(Exception):
    """What a handler raises."""


@pytest.fixture(autouse=True)
def done() -> Iterator[list[str]]:
    """What was done, in order; both handlers note theirs."""
    found: list[str] = []

    def note(signum: int, frame: FrameType | None) -> None:
        found.append(signal.Signals(signum).name)

    before = {signum: signal.signal(signum, note) for signum in (FIRST, SECOND)}
    yield found
    assert {signal.getsignal(signum) for signum in before} == {note}
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_handlers_run_after_the_outermost_block(done: list[str]) -> None:
    with Undivided():
        with Undivided(), Undivided(later=True):
            signal.raise_signal(FIRST)
        done.append("inner")
        signal.raise_signal(SECOND)
        done.append("outer")
    assert done == ["inner", "outer", "SIGINT", "SIGTERM"]


def test_handlers_wait_from_a_block_inside_on(done: list[str]) -> None:
    with Undivided(later=True):
        signal.raise_signal(FIRST)
        done.append("before")
        with Undivided():
            signal.raise_signal(SECOND)
        done.append("after")
        signal.raise_signal(SECOND)
        done.append("end")
    assert done == ["SIGINT", "before", "after", "end", "SIGTERM", "SIGTERM"]
    signal.raise_signal(SECOND)
    assert done[-2:] == ["SIGTERM", "SIGTERM"]


def test_the_third_signal_ends_the_wait(done: list[str]) -> None:
    with Undivided():
        for signum in (FIRST, SECOND):
            signal.raise_signal(signum)
        done.append("two")
        signal.raise_signal(FIRST)
        done.append("three")
    assert done == ["two", "SIGINT", "SIGTERM", "SIGINT", "three"]


def test_a_handler_that_raises_takes_no_other_with_it(
    done: list[str],
) -> None:
    note = signal.getsignal(FIRST)

    def fail(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    signal.signal(FIRST, fail)
    with pytest.raises(Alarm) as raised, Undivided():  # noqa: PT012
        signal.raise_signal(FIRST)
        signal.raise_signal(SECOND)
        raise KeyError
    assert isinstance(raised.value.__context__, KeyError)
    assert done == ["SIGTERM"]
    assert signal.getsignal(FIRST) is fail
    signal.signal(FIRST, note)


def test_a_block_that_was_not_left_in_order_is_harmless(done: list[str]) -> None:
    """As where a handler raises while handlers are replaced: one stays replaced."""
    own, block = signal.getsignal(FIRST), Undivided()
    with block:
        replaced = signal.getsignal(FIRST)
    assert replaced != own
    signal.signal(FIRST, replaced)
    signal.raise_signal(FIRST)
    assert done == ["SIGINT"]
    with Undivided():
        signal.raise_signal(FIRST)
        done.append("block")
    assert done == ["SIGINT", "block", "SIGINT"]
    assert signal.getsignal(FIRST) == own


def test_other_threads_are_left_alone(done: list[str]) -> None:
    handlers = []

    def work() -> None:
        with Undivided():
            handlers.append(signal.getsignal(FIRST))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(FIRST)]


@pytest.mark.parametrize("later", [False, True])
def test_what_is_not_pythons_stays(later: bool) -> None:
    before = {signum: signal.getsignal(signum) for signum in signal.valid_signals()}
    with Undivided(later), contextlib.ExitStack() as stack:
        stack.enter_context(Undivided())
        for signum, handler in before.items():
            assert callable(handler) == (signal.getsignal(signum) != handler)
    assert before == {signum: signal.getsignal(signum) for signum in before}


def test_a_counter_and_its_double_stay_together() -> None:
    """A handler that raises at any time finds both counted, or none."""
    counts = [0, 0]

    def fail(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    note = signal.signal(FIRST, fail)
    timer = signal.signal(signal.SIGALRM, fail)
    raised, rounds = 0, itertools.count()
    try:
        while raised < 200 and next(rounds) < 10**6:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5)
                for _ in range(50):
                    with Undivided():
                        counts[0] += 1
                        counts[1] += 1
            except Alarm:
                raised += 1
            assert counts[0] == counts[1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, timer)
        signal.signal(FIRST, note)
    assert raised
