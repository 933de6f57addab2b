# SPDX-License-Identifier: MIT
"""The number of threads where other programs use the cores."""

from __future__ import annotations

import importlib
import logging

import pytest

import pyggml as pg
from pyggml.train import threads
from pyggml.train.threads import BusyCores

devices = importlib.import_module("pyggml.backend.device")


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    """A machine of four cores whose number of threads nobody has chosen."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "_threads", None)
    monkeypatch.setattr(devices, "_share", None)
    monkeypatch.setattr(devices, "available_cores", lambda: 4)
    monkeypatch.setattr(BusyCores, "told", None)
    yield
    devices.divide_cores(None)


def train(cores, seconds, share, steps=30):
    """Note steps whose time depends on the threads; return those of each step."""
    used = []
    for _ in range(steps):
        n = pg.get_threads()
        used.append(n)
        cores.note(seconds[n], share * n * seconds[n], 100)
    return used


def test_a_free_machine_keeps_all_threads(caplog):
    cores = BusyCores(pg.device("cpu"))
    assert set(train(cores, {4: 1.0, 2: 0.1, 1: 0.1}, 0.95)) == {4}
    assert not caplog.messages


def test_a_busy_machine_computes_on_the_fastest_number(caplog):
    cores = BusyCores(pg.device("cpu"))
    with caplog.at_level(logging.WARNING, "pyggml.train"):
        used = train(cores, {4: 3.0, 2: 1.5, 1: 2.0}, 0.6)
    assert used == [4] * 4 + [2] * 4 + [1] * 4 + [2] * 18
    [told] = caplog.messages
    assert "2 CPU threads instead of 4: 2.0 times as fast" in told
    cores.close()
    assert pg.get_threads() == 4


def test_the_next_training_does_not_tell_it_again(caplog):
    for _ in range(2):
        cores = BusyCores(pg.device("cpu"))
        assert train(cores, {4: 3.0, 2: 1.5, 1: 2.0}, 0.6)[-1] == 2
        cores.close()
    assert len(caplog.messages) == 1


def test_fewer_threads_that_are_hardly_faster_are_not_taken(caplog):
    cores = BusyCores(pg.device("cpu"))
    assert train(cores, {4: 1.0, 2: 0.9, 1: 1.9}, 0.6)[-1] == 4
    assert not caplog.messages


def test_all_threads_come_back_when_the_machine_is_free(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(threads.time, "monotonic", lambda: now[0])
    cores = BusyCores(pg.device("cpu"))
    assert train(cores, {4: 3.0, 2: 1.5, 1: 1.0}, 0.6)[-1] == 1
    caplog.clear()
    now[0] = 301.0
    with caplog.at_level(logging.WARNING, "pyggml.train"):
        assert train(cores, {4: 0.3, 2: 0.5, 1: 1.0}, 0.95)[-1] == 4
    assert caplog.messages == ["train: the machine is free again; 4 CPU threads compute"]


@pytest.mark.parametrize("chosen", ["program", "variable", "midway"])
def test_a_chosen_number_stays(chosen, monkeypatch):
    if chosen == "variable":
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
    if chosen == "program":
        monkeypatch.setattr(devices, "_threads", 4)
    cores = BusyCores(pg.device("cpu"))
    if chosen == "midway":
        train(cores, {4: 3.0}, 0.6, 2)
        monkeypatch.setattr(devices, "_threads", 3)
    assert set(train(cores, {4: 3.0, 3: 3.0, 2: 1.0, 1: 1.0}, 0.6)) == {pg.get_threads()}
