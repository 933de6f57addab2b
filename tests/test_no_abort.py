# SPDX-License-Identifier: MIT
"""What must end in a result or a Python exception, and never in an abort, a hang or a crash."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import models, nn, ops, optim

# The package's `device` is the function.
device_module = importlib.import_module("pyggml.device")

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PRELUDE = """
import multiprocessing, os, signal, sys, threading, time, warnings
import numpy as np
import pyggml as pg
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, Python 3.12
pg.set_threads(2)
big = np.random.default_rng(0).random((96, 96), np.float32)

def product():
    a = pg.tensor(big)
    return (a @ a).numpy()
"""


def script(text: str, limit_s: float = 120) -> str:
    """Run a program of its own; what it prints, when it ends well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + text],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


# Sizes


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 0, 0), (-1,), (2, -2), (2**64, 0)])
@pytest.mark.parametrize("make", [pg.zeros, pg.ones, pg.empty, lambda s: pg.full(s, 1.0)])
def test_no_tensor_of_no_elements(make: Callable[..., Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(pg.ShapeError, match="every extent must be at least 1"):
        make(shape)


@pytest.mark.parametrize("array", [[], [[]], np.zeros((2, 0)), np.zeros((0, 3), np.int32)])
def test_no_tensor_of_an_empty_array(array: Any) -> None:
    with pytest.raises(pg.ShapeError, match="every extent must be at least 1"):
        pg.tensor(array)
    with pytest.raises(pg.ShapeError):
        pg.ones((2,)) + array


def test_no_op_makes_an_empty_tensor() -> None:
    x = pg.ones((3, 4))
    for fn in [
        lambda: x[3:],
        lambda: x[1:1],
        lambda: x.reshape(0, 4),
        lambda: x.reshape(0, -1),
        lambda: ops.repeat(x, (0, 4)),
        lambda: ops.broadcast_to(x, (0, 3, 4)),
        lambda: ops.concat([]),
        lambda: ops.im2col(pg.ones((1, 1, 2, 2)), 3),
        lambda: ops.pool_1d(x, 5),
    ]:
        with pytest.raises(pg.ShapeError):
            fn()


@pytest.mark.parametrize(
    "shape", [(2**48,), (2**24, 2**24), (2**62, 2), (2**64,), (10**30,), (2**31,) * 4]
)
def test_sizes_beyond_arithmetic(shape: tuple[int, ...]) -> None:
    for fn in [
        lambda: pg.zeros(shape),
        lambda: pg.full(shape, 1.0),
        lambda: ops.broadcast_to(pg.ones((1,)), shape),
        lambda: ops.repeat(pg.ones((1,)), shape),
        lambda: pg.ones((1,)).reshape(shape),
    ]:
        with pytest.raises(pg.ShapeError):
            fn()


def test_sizes_beyond_memory() -> None:
    vast = (2**20, 2**20)  # 4 TiB
    column = pg.ones((2**20, 1))
    for fn in [
        lambda: pg.zeros(vast),
        lambda: pg.full(vast, 1.0),
        lambda: pg.ones(vast),
        lambda: pg.zeros_group([(vast, "f32"), (vast, "f16")]),
        lambda: ops.broadcast_to(column, vast).numpy(),
        lambda: (column @ column.T).sum().item(),
        lambda: ops.diag(pg.ones((2**20,))).numpy(),
        lambda: ops.conv_2d(pg.ones((1, 1, 3, 3)), pg.ones((1, 1, 1, 1)), 1, 2**20).numpy(),
    ]:
        with pytest.raises(pg.BackendError, match=r"(allocate|more than is free)"):
            fn()
    with pytest.raises(pg.ShapeError):
        ops.pad(pg.ones((2,)), [(0, 2**31)])
    with pytest.raises(pg.ShapeError):
        ops.pad(pg.ones((2,)), [(0, 2**62)])


def test_a_size_over_two_billion_elements_is_recorded_without_memory() -> None:
    big = ops.broadcast_to(pg.ones((2**16, 1)), (2**16, 2**16))
    assert big.size == 2**32
    assert big[2**15, 5:9].shape == (4,)
    assert big.sum(0).shape == (2**16,)


def test_what_is_not_free_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "available_bytes", lambda: 2**28)
    column = pg.ones((2**14, 1))
    with pytest.raises(pg.BackendError, match="activations"):
        ops.broadcast_to(column, (2**14, 2**14)).sum().item()
    with pytest.raises(pg.BackendError, match="cannot allocate"):
        pg.zeros((2**14, 2**14))
    with pytest.raises(pg.BackendError, match="more than is free"):
        pg.full((2**14, 2**14), 1.0)
    assert column.sum().item() == 2**14


# NaN and infinity


BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_take_what_is_not_finite(bad: float, reduction: str) -> None:
    logits = np.zeros((3, 4), np.float32)
    logits[1, 2] = bad
    x = pg.tensor(logits, requires_grad=True)
    loss = ops.cross_entropy(x, pg.tensor([0, 1, 3]), reduction=reduction)
    values = np.atleast_1d(loss.numpy())
    assert np.isnan(values).any() or np.isinf(values).any() or bad == -np.inf
    if reduction == "none":
        assert np.isfinite(values[[0, 2]]).all()
        loss = loss.sum()
    loss.backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()[[0, 2]]).all()


@pytest.mark.parametrize("target", [-1, 4, 2**31 - 1, -(2**31)])
def test_a_class_that_is_none_makes_nan(target: int) -> None:
    x = pg.tensor(np.zeros((2, 4), np.float32), requires_grad=True)
    loss = ops.cross_entropy(x, pg.tensor(np.array([1, target], np.int32)))
    assert np.isnan(loss.item())
    loss.backward()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_optimizers_refuse_gradients_that_are_not_finite(
    bad: float, kind: type[optim.Optimizer], clip: float | None
) -> None:
    w = nn.Parameter([1.0, 2.0])
    optimizer = kind([w])
    (w * pg.tensor([1.0, bad])).sum().backward()
    with pytest.raises(FloatingPointError, match="no parameter was changed"):
        optimizer.step(clip=clip)
    assert w.tolist() == [1.0, 2.0]
    assert optimizer.steps == 0


@pytest.mark.parametrize("bad", BAD)
def test_the_norm_of_what_is_not_finite(bad: float) -> None:
    assert not np.isfinite(optim.GradNorm([pg.tensor([1.0, bad])])())


@pytest.mark.parametrize("value", [*BAD, 1e39, -1.0, None, "x", [1.0]])
def test_optimizers_refuse_hyperparameters(value: Any) -> None:
    w = nn.Parameter([1.0])
    wrong = (ValueError, TypeError)
    for make in [
        lambda: optim.SGD([w], lr=value),
        lambda: optim.SGD([w], weight_decay=value),
        lambda: optim.AdamW([w], betas=(value, 0.9)),
        lambda: optim.AdamW([w], betas=(0.9, value)),
        lambda: optim.AdamW([w], eps=value),
    ]:
        with pytest.raises(wrong):
            make()
    optimizer = optim.SGD([w])
    if value is not None:
        with pytest.raises(wrong):
            optimizer.step(lr=value)
    if value is not None and value not in (np.inf, 1e39):
        with pytest.raises(wrong):
            optimizer.step(clip=value)


# Arrays of every kind


@pytest.mark.parametrize(
    "values",
    [
        np.array([None, 1], object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
        np.ma.masked_array([1.0, 2.0], [False, True]),
        np.array([1j]),
        np.array([True]),
        np.array(["1"]),
        np.array(["2020-01-01"], "M8[D]"),
        "1.0",
        b"1.0",
        {1: 2},
        {1.0},
        None,
        object(),
        2**100,
        [2**100],
        [2**40],
        (x for x in [1.0]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_number_is_refused(values: Any) -> None:
    with pytest.raises((pg.DTypeError, pg.ShapeError)):
        pg.tensor(values)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype=">i4"),
        np.arange(6.0)[::-2],
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.broadcast_to(np.float32(2), (3, 4)),
        np.float64(3),
        np.array(7),
        np.arange(6, dtype=np.uint8),
        np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(8, dtype=np.float16),
        np.longdouble([1, 2]),
    ],
    ids=lambda a: f"{a.dtype.str}-{a.shape}",
)
def test_arrays_of_every_layout(array: Any) -> None:
    t = pg.tensor(array)
    assert np.array_equal(t.numpy(), np.asarray(array).astype(t.numpy().dtype))
    t.numpy()[...] = 9  # a copy: nobody else's numbers
    assert np.array_equal(t.numpy(), np.asarray(array).astype(t.numpy().dtype))


# Gradients with strides of their own


@pytest.mark.parametrize("rows", [1, 2, 32])
def test_gradients_that_are_part_of_another(rows: int) -> None:
    text = f"""
from pyggml import ops
x = pg.tensor(np.ones(({rows}, 3)), requires_grad=True)
for fn in [
    lambda y: ops.concat([y, y], 0),
    lambda y: ops.concat([y, y], 1),
    lambda y: ops.pad(y, [(1, 1), (0, 0)]),
    lambda y: ops.mul_mat(pg.ones((4, 3)), y.reshape({rows}, 1, 1, 3).permute(0, 2, 1, 3)),
    lambda y: y.reshape(1, {rows}, 3).permute(1, 0, 2) @ pg.ones((3, 2)),
    lambda y: y[:1],
]:
    for before in (lambda a: a * 2.0, lambda a: a + 1.0, ops.relu, ops.silu, ops.sqr):
        fn(before(x)).sum().backward()
print(np.isfinite(x.grad.numpy()).all())
"""
    assert script(text) == "True\n"


# Things of another kind


def test_what_is_no_tensor_or_function() -> None:
    x = pg.tensor([1.0], requires_grad=True)
    for fn in [
        lambda: pg.Graph([None]),  # type: ignore[list-item]
        lambda: pg.Graph("ab"),  # type: ignore[arg-type]
        lambda: pg.Graph([], effects=[1]),  # type: ignore[list-item]
        lambda: pg.Graph([], loss=1.0),  # type: ignore[arg-type]
        lambda: pg.Graph([], loss=(x * 2.0).sum(), grads={x: None}),  # type: ignore[dict-item]
        lambda: setattr(x, "grad", 3),
        lambda: x.register_hook(None),  # type: ignore[arg-type]
        lambda: pg.compile(None),  # type: ignore[arg-type]
        lambda: pg.compile(lambda x: {"x": x})([1.0]),
        lambda: pg.compile(lambda x: None)([1.0]),
        lambda: pg.value_and_grad(None),  # type: ignore[arg-type]
        lambda: pg.value_and_grad(lambda x: x, "x"),  # type: ignore[arg-type]
        lambda: pg.value_and_grad(lambda x: x, [0, 0]),
        lambda: pg.value_and_grad(lambda x, y: x, [0, -2])([1.0], [2.0]),
        lambda: pg.value_and_grad(lambda x: x, True),
        lambda: pg.check_grads(lambda x: None, [1.0]),  # type: ignore[arg-type,return-value]
        lambda: pg.check_grads(None, [1.0]),  # type: ignore[arg-type]
        lambda: ops.linear(pg.ones((2, 3)), pg.ones((4, 3)), 1.0),  # type: ignore[arg-type]
        lambda: nn.CausalSelfAttention(8, 2, rope=1),  # type: ignore[arg-type]
        lambda: models.GPT2(3),  # type: ignore[arg-type]
    ]:
        with pytest.raises(TypeError):
            fn()


def test_lengths_that_no_memory_holds() -> None:
    config = models.GPT2Config(vocab_size=9, context=8, n_embd=8, n_layer=2**40, n_head=2)
    for fn in [
        lambda: nn.causal_mask(2**23),
        lambda: nn.position_ids(2**46),
        lambda: models.GPT2(config),
    ]:
        with pytest.raises(pg.BackendError, match="more than is free"):
            fn()
    for length in (0, -1, 1.5, 2**47):
        with pytest.raises(pg.ShapeError, match=r"at least 1|integers|too many"):
            nn.causal_mask(length)  # type: ignore[arg-type]


@pytest.mark.parametrize("eps", [0.0, -1.0, np.nan, 1e-30])
def test_a_step_that_does_not_move(eps: float) -> None:
    with pytest.raises(ValueError, match="eps must move every element"):
        pg.check_grads(lambda x: x * x, [1.0], eps=eps)


# Lifetimes


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


def test_very_many_tensors() -> None:
    held = [pg.zeros((1,)) for _ in range(20_000)]
    assert pg.Graph([*held[:3], held[0] + held[-1]]).n_nodes == 1
    del held


@pytest.mark.parametrize("length", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_chains(length: int) -> None:
    text = """
x = pg.tensor([1.0], requires_grad=True)
y = x
for _ in range(LENGTH):
    y = y * 1.0
assert y.numpy().tolist() == [1.0]
y.sum().backward()
assert x.grad.tolist() == [1.0]
z = pg.tensor([0.0])
for _ in range(4 * LENGTH):
    z = z + x
del y, z
print("freed")
"""
    assert script(text.replace("LENGTH", str(length))) == "freed\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_more_ops_than_fit_in_memory() -> None:
    text = """
import resource
x = pg.tensor([1.0], requires_grad=True)
y = x
for _ in range(30_000):
    y = y * 1.0
product()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29,) * 2)
try:
    y.sum().backward()
except pg.BackendError as error:
    print(error)
assert pg.tensor([2.0]).sum().item() == 2.0
"""
    assert "compute in parts, with .detach() between them" in script(text)


LIMIT = """
import resource
def limit(size_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size_bytes,) * 2)
pg.set_threads(1)
product()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
@pytest.mark.parametrize("mb", [1, 5, 12, 40])
def test_graphs_until_the_memory_is_full(mb: int) -> None:
    text = """
kept = []
limit(MB * 2**20)
try:
    while True:
        y = pg.ones((300, 300))
        y.requires_grad = True
        kept.append((y, pg.ops.tanh(y @ y)))
        kept[-1][1].sum().backward()
except (MemoryError, pg.BackendError):
    kept.clear()
    print("refused")
"""
    assert script(LIMIT + text.replace("MB", str(mb))) == "refused\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_ops_in_a_full_memory() -> None:
    text = """
x, kept = pg.ones((8, 8)), []
limit(100 * 2**20)
try:
    while True:
        kept.append(np.ones(2**17))
except MemoryError:
    pass
refused = 0
for call in (
    lambda: pg.ones((4, 4)),
    lambda: (x @ x).numpy(),
    lambda: [pg.ops.tanh(x) for _ in range(2000)],
    lambda: pg.zeros((300, 300)),
):
    try:
        call()
    except (MemoryError, pg.BackendError):
        refused += 1
kept.clear()
print(refused > 0, (x @ x).numpy().sum())
"""
    assert script(LIMIT + text) == "True 512.0\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_no_memory_to_work_in() -> None:
    text = """
a, b = pg.tensor(np.ones((64, 4096)), "f16"), pg.ones((2048, 4096))
graph = pg.Graph([pg.ops.mul_mat(a, b)])
limit(3 * 2**20)
try:
    graph.run()
except pg.BackendError as error:
    print(error)
"""
    assert "bytes to work in are more than is free" in script(LIMIT + text)


# Copies


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


# Threads


def together(*workers: Callable[[], Any]) -> None:
    """Run all at once; raise what any of them raised."""
    failures: list[BaseException] = []

    def guarded(fn: Callable[[], Any]) -> None:
        try:
            fn()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(fn,), daemon=True) for fn in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def test_different_graphs_at_once() -> None:
    def work(seed: int) -> None:
        a = np.random.default_rng(seed).random((33, 17), np.float32)
        t = pg.tensor(a)
        for i in range(20):
            got = ((t @ t.T) * float(i)).numpy()
            assert np.allclose(got, a @ a.T * i, rtol=1e-4)

    together(*(lambda s=s: work(s) for s in range(4)))


def test_the_same_tensor_at_once() -> None:
    for _ in range(10):
        x = pg.tensor(np.arange(100.0), requires_grad=True)
        shared, plain = (x * 2.0).sum(), (x.detach() * 3.0).sum()

        def work(shared: pg.Tensor = shared, plain: pg.Tensor = plain) -> None:
            assert shared.item() == 9900.0
            assert plain.item() == 14850.0

        together(work, work, work)


def test_gradients_from_several_threads_add_up() -> None:
    x = pg.tensor(np.ones(50), requires_grad=True)

    def work() -> None:
        for _ in range(10):
            (x * 2.0).sum().backward()

    together(work, work, work)
    assert x.grad is not None
    assert (x.grad.numpy() == 60.0).all()


def test_the_same_function_at_once() -> None:
    weight = pg.tensor(np.eye(20, dtype=np.float32) * 3)
    compiled = pg.compile(lambda x: x @ weight)
    both = pg.value_and_grad(lambda x: (x * x).sum())

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            a = rng.random((5, 20), np.float32)
            assert np.allclose(compiled(a).numpy(), a * 3)
            value, grad = both(a)
            assert np.isclose(value.item(), (a * a).sum(), rtol=1e-4)
            assert np.allclose(grad.numpy(), 2 * a)

    together(*(lambda s=s: work(s) for s in range(4)))


# Forks


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
child.join(60)
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


# Ends


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
threading.Thread(target=interrupt, daemon=True).start()
try:
    while True:
        product()
except KeyboardInterrupt:
    print("stopped")
assert pg.tensor([1.0, 2.0]).sum().item() == 3.0
"""
    assert script(text) == "stopped\n"
