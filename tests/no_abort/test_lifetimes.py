# SPDX-License-Identifier: MIT
"""What is destroyed in odd orders, copied, pickled; the end of a process."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim

from .programs import script

# The package's `device` is the function.
device_module = importlib.import_module("pyggml.backend.device")


def test_destroyed_in_odd_orders() -> None:
    for order in [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)]:
        x = pg.tensor([1.0, 2.0], requires_grad=True)
        y = (x * 3.0).sum()
        g = pg.Graph([y], loss=y, grads={x: pg.zeros((2,))})
        g.run()
        held: list[Any] = [x, y, g]
        del x, y, g
        for i in order:
            held[i] = None
    loss = (pg.tensor([4.0]) * 2.0).sum()  # the leaf lives on in the op
    assert loss.item() == 8.0


def test_tensors_of_a_graph_that_is_gone() -> None:
    x = pg.tensor([1.0, 2.0])
    y = x * 2.0
    graph = pg.Graph([y])
    graph.run()
    fetched = graph.fetch(y)
    del graph
    assert y.numpy().tolist() == fetched.tolist() == [2.0, 4.0]
    with pytest.raises(KeyError):
        pg.Graph([x * 1.5]).read(y)
    unrun = pg.Graph([z := x * 3.0])
    with pytest.raises(pg.BackendError, match="not run"):
        unrun.read(z)


def test_tensors_of_two_devices() -> None:
    cpu = pg.device("cpu")
    other = device_module.Device("other", "cpu", cpu._handle)  # the same memory by another name
    a, b = pg.tensor([1.0], device=cpu), pg.tensor([1.0], device=other)
    with pytest.raises(pg.BackendError, match="one device"):
        a + b
    with pytest.raises(pg.BackendError, match="one device"):
        optim.SGD([nn.Parameter([1.0]), pg.tensor([1.0], device=other, requires_grad=True)])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "q8_0"])
def test_pickled_and_copied(dtype: str) -> None:
    values = np.arange(64).reshape(2, 32).astype(np.int32 if dtype == "i32" else np.float32)
    t = pg.tensor(values, dtype, requires_grad=dtype == "f32")
    for twin in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert twin.dtype == t.dtype
        assert twin.requires_grad == t.requires_grad
        assert np.array_equal(twin.numpy(), t.numpy())
        twin.zero_()
    assert t.numpy().any()
    assert copy.copy(t).node is t.node
    view = pg.tensor(np.arange(6.0).reshape(2, 3)).T
    assert pickle.loads(pickle.dumps(view)).tolist() == view.tolist()


def test_pickle_refuses_what_leads_to_parameters() -> None:
    w = nn.Parameter([1.0])
    with pytest.raises(TypeError, match=r"use t\.detach\(\)"):
        pickle.dumps(w * 2.0)


def test_a_copied_module_trains_apart() -> None:
    layer = nn.Linear(3, 2)
    twin = copy.deepcopy(layer)
    assert [n for n, _ in twin.named_parameters()] == ["weight", "bias"]
    twin.weight.zero_()
    assert layer.weight.numpy().any()


def test_exit_while_a_thread_computes() -> None:
    text = """
def busy():
    while True:
        product()
for _ in range(2):
    threading.Thread(target=busy, daemon=True).start()
time.sleep(0.3)
print("leaving")
"""
    for _ in range(3):
        assert script(text) == "leaving\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_while_computing() -> None:
    text = """
def interrupt():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=interrupt, daemon=True).start()
    while True:
        product()
except KeyboardInterrupt:
    print("stopped")
assert pg.tensor([1.0, 2.0]).sum().item() == 3.0
"""
    assert script(text) == "stopped\n"
