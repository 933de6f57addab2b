# SPDX-License-Identifier: MIT
from __future__ import annotations

import signal
import threading

import pytest

from pyggml.train import InterruptGuard, TrainingInterrupted


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


def test_the_second_acts_at_once():
    with InterruptGuard() as guard:
        signal.raise_signal(signal.SIGINT)
        assert guard.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


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
