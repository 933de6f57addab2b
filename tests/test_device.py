# SPDX-License-Identifier: MIT
"""Devices and threads."""

from __future__ import annotations

import pytest

import pyggml as pg


def test_the_cpu_is_there_and_described() -> None:
    cpu = pg.device("cpu")
    assert cpu in pg.devices()
    assert cpu.description
    assert cpu.memory_total > 0
    assert pg.device("auto") is pg.devices()[0]
    assert pg.device(None) is pg.default_device()
    assert pg.device(cpu) is cpu


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "", "cpu:7", 3])
def test_a_device_that_is_not_there(name) -> None:
    with pytest.raises(pg.BackendError, match="device:"):
        pg.device(name)


def test_threads() -> None:
    before = pg.get_threads()
    try:
        pg.set_threads(1)
        assert pg.get_threads() == 1
        assert (pg.ones((4, 4)) @ pg.ones((4, 4))).numpy().sum() == 64
    finally:
        pg.set_threads(before)
    for bad in (0, -1, 513, 1.5, True):
        with pytest.raises(ValueError, match="set_threads"):
            pg.set_threads(bad)


def test_more_memory_than_there_is() -> None:
    with pytest.raises(pg.BackendError, match="cannot allocate"):
        pg.zeros((2**20, 2**20, 2**6))


def test_seeds() -> None:
    pg.seed(3)
    first = pg.random_generator().random(4)
    pg.seed(3)
    assert (first == pg.random_generator().random(4)).all()
    with pytest.raises(ValueError, match="seed"):
        pg.seed(-1)
