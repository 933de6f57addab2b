# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import signal
import threading

import pytest

from pyggml.cli.errors import explain
from pyggml.train import InterruptGuard, StoppedAtOnce, TrainingInterrupted


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted(signum):
    before = signal.getsignal(signum)
    heard = []
    with InterruptGuard(heard.append) as guard:
        assert not guard.requested
        signal.raise_signal(signum)
        assert guard.requested
        assert guard.signum == signum
    assert heard == [signum]
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_acts_at_once(first, second):
    with InterruptGuard() as guard:
        signal.raise_signal(first)
        assert guard.requested
        with pytest.raises(StoppedAtOnce) as caught:
            signal.raise_signal(second)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.signum == second
    # The exit code that a shell knows of it.
    assert explain(caught.value) == ("interrupted", 128 + second)


HANGUP = getattr(signal, "SIGHUP", None)


@pytest.mark.skipif(HANGUP is None, reason="needs SIGHUP")
def test_a_terminal_that_closes_asks_for_the_end_once():
    before = signal.signal(HANGUP, signal.SIG_DFL)
    try:
        with InterruptGuard() as guard:
            signal.raise_signal(HANGUP)
            assert (guard.requested, guard.signum) == (True, HANGUP)
            signal.raise_signal(HANGUP)
            with pytest.raises(StoppedAtOnce):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(HANGUP) is signal.SIG_DFL
        signal.signal(HANGUP, signal.SIG_IGN)  # as nohup does
        with InterruptGuard() as guard:
            signal.raise_signal(HANGUP)
            assert not guard.requested
        assert signal.getsignal(HANGUP) is signal.SIG_IGN
    finally:
        signal.signal(HANGUP, before)


def test_other_threads_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with InterruptGuard() as guard:
            seen.append((guard.requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def test_an_interruption_is_a_keyboard_interrupt(tmp_path):
    error = TrainingInterrupted(7, tmp_path / "step-000007")
    assert isinstance(error, KeyboardInterrupt)
    assert "step 7" in str(error)
    assert "step-000007" in str(error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_in_a_training_does_not_train():
    """A loader's worker ends at the first SIGTERM, which `multiprocessing` sends and waits for."""
    with InterruptGuard() as guard:
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGTERM)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not guard.requested
