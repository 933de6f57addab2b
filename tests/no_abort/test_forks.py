# SPDX-License-Identifier: MIT
"""Forked processes compute, on one thread."""

from __future__ import annotations

import importlib
import os

import pytest

import pyggml as pg

from .programs import script

# The package's `device` is the function.
device_module = importlib.import_module("pyggml.backend.device")

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@forks
def test_a_forked_child_computes() -> None:
    text = """
want = product()
child = os.fork()
if child == 0:
    assert pg.get_threads() == 1
    assert np.allclose(product(), want)
    x = pg.tensor([1.0], requires_grad=True)
    (x * 2.0).sum().backward()
    os._exit(7 if x.grad.tolist() == [2.0] else 8)
_, status = os.waitpid(child, 0)
assert os.WEXITSTATUS(status) == 7, status
assert np.allclose(product(), want)
assert pg.get_threads() == 2
print("both")
"""
    assert script(text) == "both\n"


@forks
def test_a_forked_child_reads_and_frees_the_parents_tensors() -> None:
    text = """
kept, graph_in = pg.tensor([1.0, 2.0]), pg.tensor([3.0])
out = graph_in * 2.0
graph = pg.Graph([out])
graph.run()
compiled = pg.compile(lambda x: x + 1.0)
compiled([1.0])

def work():
    global kept, graph, out
    assert kept.tolist() == [1.0, 2.0]
    graph_in.copy_([5.0])
    graph.run()
    assert graph.read(out).tolist() == [10.0]
    assert compiled([2.0]).tolist() == [3.0]
    del kept, graph, out

product()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0, child.exitcode
assert graph_in.tolist() == [3.0]
print("apart")
"""
    assert script(text) == "apart\n"


@forks
def test_a_fork_while_another_thread_computes() -> None:
    text = """
stop = False
def busy():
    while not stop:
        product()
thread = threading.Thread(target=busy, daemon=True)
thread.start()
time.sleep(0.2)
for i in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if product().shape == (96, 96) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
thread.join()
print("ten")
"""
    assert script(text) == "ten\n"


@forks
def test_workers_that_only_use_numpy() -> None:
    text = """
def load(i):
    return np.full((3,), i).sum()
product()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(load, range(20)) == [3 * i for i in range(20)]
product()
print("loaded")
"""
    assert script(text) == "loaded\n"


@forks
def test_workers_that_compute_and_send_tensors() -> None:
    text = """
def load(i):
    return (pg.tensor([float(i)]) * 2.0).detach()
product()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert [t.item() for t in pool.map(load, range(10))] == [2.0 * i for i in range(10)]
print("sent")
"""
    assert script(text) == "sent\n"


@forks
def test_more_threads_in_a_forked_child_are_told() -> None:
    text = """
product()
child = os.fork()
if child == 0:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pg.set_threads(4)
    good = pg.get_threads() == 1 and "one thread" in str(seen[0].message)
    product()
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
print("told")
"""
    assert script(text) == "told\n"


def test_a_forked_process_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = pg.device("cpu")
    gpu = device_module.Device("cuda:0", "gpu", cpu._handle)
    t = pg.tensor([1.0], device=gpu)
    monkeypatch.setattr(device_module, "_forked", True)
    for fn in [
        t.numpy,
        t.zero_,
        lambda: t.copy_([2.0]),
        lambda: pg.zeros((2,), device=gpu),
        (t + 1.0).numpy,
    ]:
        with pytest.raises(pg.BackendError, match="use the spawn start method"):
            fn()
