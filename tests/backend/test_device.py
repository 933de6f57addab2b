# SPDX-License-Identifier: MIT
"""Devices and threads."""

from __future__ import annotations

import gc
import importlib
import mmap
import sys
import threading
import time
from typing import Any, cast

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.backend.buffers import freer
from pyggml.backend.library import ffi, lib
from pyggml.backend.weak_set import WeakGroup

# The package has a function of this name.
device_module = sys.modules["pyggml.backend.device"]
memory_module = sys.modules["pyggml.backend.memory"]


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
        with pytest.raises((TypeError, ValueError), match="set_threads: n"):
            pg.set_threads(bad)


def test_a_device_is_started_by_one_thread(monkeypatch) -> None:
    """Vulkan's backend makes a device as it is first asked for anything, without a lock."""
    starting, most, begun = 0, 0, threading.Barrier(4)
    started = False
    node = pg.tensor([1.0]).ptr

    class Backend:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def ggml_backend_dev_buffer_type(self, handle: Any) -> Any:
            nonlocal starting, most, started
            starting += 1
            most = max(most, starting)
            time.sleep(0.05)
            starting -= 1
            started = True
            return lib.ggml_backend_dev_buffer_type(handle)

        def ggml_backend_dev_supports_op(self, handle: Any, op: Any) -> bool:
            assert started
            return bool(lib.ggml_backend_dev_supports_op(handle, op))

    monkeypatch.setattr(device_module, "lib", Backend())
    fresh = pg.Device("cpu", "cpu", pg.device("cpu")._handle)
    found: list[Any] = []

    def ask(i: int) -> None:
        begun.wait()
        found.append(fresh.supports(node) if i % 2 else fresh.buffer_type)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert most == 1


def test_memory_of_the_cpu_is_freed_without_python() -> None:
    """A signal there would be raised in a callback of C, and be lost."""
    free = lib.ggml_backend_buffer_free
    assert freer(pg.device("cpu"), free) is free


def test_ctrl_c_while_memory_is_freed_comes_later() -> None:
    class Gpu:  # as far as it matters here
        kind, is_lost = "gpu", False

    def free(ptr: object) -> None:
        raise KeyboardInterrupt

    pointer = ffi.gc(ffi.new("int *"), freer(cast("pg.Device", Gpu()), free))
    del pointer
    with pytest.raises(KeyboardInterrupt):
        (pg.ones(3) + 1.0).numpy()
    assert (pg.ones(3) + 1.0).numpy().tolist() == [2.0, 2.0, 2.0]


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


@pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="memory comes from the heap here")
def test_large_zeros_take_memory_when_they_are_written():
    gc.collect()  # what other tests left must not go meanwhile
    untouched = memory_module.UNTOUCHED
    before = len(untouched)
    zeros = pg.zeros((2**21,))
    assert zeros.buffer.is_zero
    assert len(untouched) == before + 1
    assert not zeros.numpy().any()
    assert len(untouched) == before + 1
    pg.Graph([], effects=[pg.ops.cpy(pg.ones((2**21,)), zeros)]).run()
    assert len(untouched) == before
    assert zeros.numpy().all()
    written = pg.tensor(np.ones(2**21, np.float32))
    assert written.buffer.is_zero
    unwritten = pg.zeros((2**21,))
    assert len(untouched) == before + 1
    del unwritten
    assert len(untouched) == before
    small = pg.zeros((2**10,))
    assert not small.buffer.is_zero
    assert not small.numpy().any()


def test_promised_memory_is_not_free(monkeypatch):
    monkeypatch.setattr(device_module, "available_bytes", lambda: 2**30)
    gc.collect()  # what other tests left must not go meanwhile
    cpu = pg.device("cpu")
    free = cpu.memory_free
    zeros = pg.zeros((2**21,))
    assert cpu.memory_free == free - (zeros.buffer.size_bytes if zeros.buffer.is_zero else 0)
    zeros.copy_(np.ones(2**21, np.float32))
    assert cpu.memory_free == free


def test_free_memory_is_read_while_another_thread_takes_some(monkeypatch):
    class Changing(dict):
        """As a table to which another thread adds while it is read."""

        reads = 0

        def values(self):
            self.reads += 1
            if self.reads < 3:
                raise RuntimeError("dictionary changed size during iteration")
            return super().values()

    class Held:
        size_bytes = 2**20

    held = Held()
    group = WeakGroup()
    group._refs = Changing()
    group.add(held)
    monkeypatch.setattr(memory_module, "UNTOUCHED", group)
    monkeypatch.setattr(device_module, "available_bytes", lambda: 2**30)
    assert pg.device("cpu").memory_free == 2**30 - 2**20
    assert group._refs.reads == 3


def calls_of_python(end):
    """The names of the Python functions that run while `end` lets something go."""
    seen = []
    callbacks = gc.callbacks.copy()  # of others, such as Hypothesis
    gc.callbacks.clear()
    sys.setprofile(lambda frame, event, _: event == "call" and seen.append(frame.f_code.co_name))
    try:
        end()
    finally:
        sys.setprofile(None)
        gc.callbacks.extend(callbacks)
    return seen


@pytest.mark.parametrize("what", ["zeros", "optimizer"])
def test_a_signal_finds_no_python_code_where_memory_is_freed(what):
    """Ctrl-C would be raised in there, and lost: nobody can catch it."""
    if what == "zeros":
        held = [pg.zeros((2**21,))]
    else:
        held = [optim.SGD([nn.Parameter(np.ones((4, 4), np.float32))], lr=0.1)]
    gc.collect()
    assert calls_of_python(held.clear) == []
    assert calls_of_python(gc.collect) == []


def test_a_group_keeps_nobody_alive():
    class Member:
        pass

    a, b = Member(), Member()
    group = WeakGroup()
    group.update([a, b, a])
    assert len(group) == 2
    assert a in group
    assert Member() not in group
    group.discard(b)
    group.discard(b)
    assert group.members() == [a]
    del a
    assert group.members() == []
    assert len(group) == 0


def test_ranks_of_a_host_take_gpus_of_their_own(monkeypatch):
    module = importlib.import_module("pyggml.backend.device")
    cpu = pg.device("cpu")
    gpus = [module.Device(f"cuda:{n}", "gpu", cpu._handle) for n in range(2)]
    found = {"cpu": cpu, **{gpu.name: gpu for gpu in gpus}}
    monkeypatch.setattr(module, "_all", lambda: found)
    monkeypatch.setattr(module, "_place", 0)
    for place, want in ((0, 0), (1, 1), (2, 0)):
        module.own_gpu(place)
        assert pg.device("auto") is pg.device("cuda") is gpus[want]
        assert pg.device("cuda:1") is gpus[1]
        assert pg.device("cpu") is cpu
    with pytest.raises(pg.BackendError, match="cuda:2"):
        pg.device("cuda:2")
