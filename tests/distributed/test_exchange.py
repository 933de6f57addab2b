# SPDX-License-Identifier: MIT
"""Buckets, divided optimizers, and sums of rounded numbers."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.backend.memory import release_pages
from pyggml.distributed import Group
from pyggml.errors import ConfigError, DistributedError
from pyggml.graph import Graph, grad_of
from pyggml.optim import LBFGS, SGD, AdamW, Muon
from pyggml.tensors.storage import memory_vector
from pyggml.train import TrainerOptions
from pyggml.train.exchange import Exchange, Shards
from pyggml.train.exchange.arrivals import Arrivals
from pyggml.train.exchange.buckets import BUCKET_BYTES, divide, make_buckets
from pyggml.train.exchange.windows import Windows
from pyggml.train.ranks import make_exchange

from .ranks import run_code


class Two(Group):
    """A group that says it has two ranks, and sends nothing."""

    size = 2

    def sums(self, *values: float) -> list[float]:
        """Return the numbers of this rank."""
        return list(values)


def test_costs_are_divided_evenly() -> None:
    assert divide([5, 3, 1, 1], 2) == [0, 1, 1, 1]
    owners = divide(list(range(1, 101)), 4)
    sums = [sum(c for c, o in zip(range(1, 101), owners, strict=True) if o == r) for r in range(4)]
    assert max(sums) - min(sums) <= 4
    assert divide([7], 3) == [0]


def test_buckets_hold_neighbours_of_one_owner() -> None:
    params = [pg.zeros(n) for n in (3, 5, BUCKET_BYTES // 4, 8)]
    found = make_buckets(params, [1, 0, 2, 3], [0, 0, 0, 1], params[0].device)
    assert [bucket.members for bucket in found] == [(1, 0), (2,), (3,)]
    assert found[0].places[0] == 0
    assert found[0].places[1] >= 5
    assert [bucket.owner for bucket in found] == [0, 0, 1]


def test_a_graph_tells_its_last_ops() -> None:
    w, v, x = pg.nn.Parameter([1.0, 2.0]), pg.nn.Parameter([3.0, 4.0]), pg.tensor([5.0, 6.0])
    loss = (w * x * v).sum()
    dw, unused = pg.zeros(2), pg.zeros(2)
    dv = grad_of(v)
    square = pg.ops.sum_sqr(dv)
    graph = Graph([loss], loss=loss, grads={w: dw, v: dv}, effects=[square])
    places = graph.last_ops([dw, unused, square])
    assert places[1] == -1
    assert min(places[0], places[2]) >= 0
    assert max(places) < graph.n_nodes
    graph.run()
    assert dw.tolist() == [15, 24]


@pytest.mark.parametrize("gradients", [False, True])
def test_two_parts_of_an_optimizer_do_what_the_whole_does(gradients: bool) -> None:
    def trained(owned: list[list[bool]]) -> tuple[list[np.ndarray], int]:
        params = [nn.Parameter(np.full(s, 0.5, np.float32)) for s in ((4, 4), (4,), (2, 4))]
        whole, nbytes = [p.numpy() for p in params], 0
        for mine in owned:
            own = [nn.Parameter(p.numpy()) for p in params]
            optimizer = Muon(own, lr=0.1)
            if len(owned) > 1:
                optimizer.shard(mine, [2, 0, 1], lambda x: 3 * x, gradients)
            nbytes += optimizer.nbytes
            for p in own:
                if optimizer.grads[p].is_stored:
                    optimizer.grads[p].copy_(np.full(p.shape, 0.25, np.float32))
            for _ in range(2):
                optimizer.step()
            whole = [p.numpy() if o else w for p, o, w in zip(own, mine, whole, strict=True)]
            assert all(o or (p.numpy() == 0.5).all() for p, o in zip(own, mine, strict=True))
        return whole, nbytes

    alone, size = trained([[True] * 3])
    parts, sizes = trained([[True, False, False], [False, True, True]])
    assert sizes == size
    assert all((a == b).all() for a, b in zip(alone, parts, strict=True))


def test_the_norm_is_that_of_all_parts() -> None:
    params = [nn.Parameter([3.0]), nn.Parameter([4.0])]
    optimizer = SGD(params, lr=0.0)
    optimizer.shard([True, False], [0, 1], lambda x: x + 16.0)
    (params[0] * 3.0).sum().backward()
    assert optimizer.step() == math.hypot(3.0, 4.0)


def test_what_cannot_be_divided_is_refused() -> None:
    layer = nn.Linear(4, 2)
    options = TrainerOptions(zero=1)
    with pytest.raises(ConfigError, match="closure"):
        make_exchange("Trainer", options, Two(), LBFGS(layer))
    second = Two()
    second.rank = 1
    with pytest.raises(ConfigError, match="fewer"):
        make_exchange("Trainer", options, second, SGD([layer.weight]))
    with pytest.raises(ConfigError, match="reduce_dtype"):
        TrainerOptions(error_feedback=True)
    with pytest.raises(ConfigError, match="zero"):
        TrainerOptions(zero=4)
    with pytest.raises(ConfigError, match="ema"):
        TrainerOptions(zero=3, ema=0.9)
    with pytest.raises(ConfigError, match="THREAD_MULTIPLE"):
        make_exchange("Trainer", TrainerOptions(zero=3), Two(), AdamW(layer))


def test_a_divided_state_is_not_written_by_one_rank() -> None:
    optimizer = AdamW(nn.Linear(4, 2))
    shards = Shards(Two(), optimizer, Exchange(Two(), optimizer, zero=1))
    with pytest.raises(DistributedError, match="every rank"):
        shards.state_dict()


class Sender(Two):
    """A group whose rank 0 sends numbers that arrive when they are waited for."""

    rank, goes_on = 1, True

    def __init__(self, sent: float = 2.0) -> None:
        super().__init__()
        self.sent = sent
        self.begun: list[np.ndarray] = []
        self.arrived = 0

    def begin_arrival(self, array: np.ndarray, src: int) -> int:
        """Keep it; until it arrives, it holds nothing that may be used."""
        if src != self.rank:
            array[...] = np.nan
        self.begun.append(array)
        return len(self.begun)

    def arrive(self, number: int) -> None:
        """Let it arrive, with those before it."""
        for array in self.begun[self.arrived : number]:
            array[...] = self.sent
        self.arrived = max(number, self.arrived)

    def share(self, value: Any, src: int = 0) -> Any:
        """Return this rank's value."""
        return value


def test_parameters_arrive_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyggml.train.exchange.buckets.SMALL_BYTES", 64)
    params = [nn.Parameter(np.ones(n, np.float32)) for n in (32, 4, 32, 8)]
    group = Sender()
    arrivals = Arrivals(group, [params[2:], params[:1], params[1:2]], [0, 0, 0])
    x = pg.tensor(np.ones(32, np.float32))
    product = (x * params[0]).sum() + (x * params[2]).sum()
    graph = Graph([product])
    arrivals.settle_order(graph)

    arrivals.begin()
    versions = [param.buffer.version for param in params]
    with arrivals.awaiting(graph):
        assert group.arrived == 1  # what the first op reads; the others may come later
        graph.run()
        assert group.arrived == 3
        assert arrivals.late == 1
    assert graph.read(product).item() == 128.0
    assert group.arrived == 4  # also what the graph does not read
    assert params[1].tolist() == [2.0] * 4
    assert versions == [param.buffer.version for param in params]

    uses: tuple[Callable[[], object], ...] = (
        params[3].numpy,
        lambda: params[0].copy_(np.ones(32, np.float32)),
        graph.run,
        arrivals.begin,
    )
    for use in uses:
        arrivals.begin()
        begun = len(group.begun)
        assert group.arrived == begun - 4
        use()
        assert group.arrived == begun, "something else waits for all of them"
    arrivals.settle()

    params[0].requires_grad = False
    begun = len(group.begun)
    arrivals.begin()
    assert len(group.begun) == begun + 3
    arrivals.overlaps = False
    arrivals.begin()
    assert group.arrived == len(group.begun) == begun + 6


def test_what_is_on_its_way_keeps_its_memory() -> None:
    param, group = nn.Parameter(np.zeros(1 << 18, np.float32)), Sender()
    memory = weakref.ref(param.buffer)
    arrivals = Arrivals(group, [[param]], [0])
    arrivals.begin()
    # A loop of one's own ends, and its model with it.
    del param, arrivals
    gc.collect()
    assert memory() is not None, "the array still arrives there"
    group.arrive(1)
    group.begun.clear()
    gc.collect()
    assert memory() is None


def test_parameters_are_there_while_ops_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    width, held, most = 64, set[int](), 0
    params = [nn.Parameter(np.full((width, width), 1 / width, np.float32)) for _ in range(8)]
    owners = [i % 2 for i in range(8)]
    places = {memory_vector(p.node).ctypes.data: i for i, p in enumerate(params)}

    class Watched(Sender):
        """A group that counts what is in memory."""

        def begin_arrival(self, array: np.ndarray, src: int) -> int:
            """Count it, unless it is this rank's own."""
            nonlocal most
            if src != self.rank:
                held.add(places[array.ctypes.data])
                most = max(most, len(held))
            return super().begin_arrival(array, src)

    def release(begin: int, size_bytes: int) -> None:
        held.discard(places[begin])
        release_pages(begin, size_bytes)

    monkeypatch.setattr("pyggml.train.exchange.windows.release_pages", release)
    group = Watched(1 / width)
    windows = Windows(group, params, owners)
    x = nn.Parameter(np.ones((1, width), np.float32))
    y = x
    for param in params:
        y = nn.functional.linear(y, param)
    loss, grads = y.sum(), {p: pg.zeros(*p.shape) for p in (x, *params)}
    graph, reading = Graph([loss], loss=loss, grads=grads, overwrite=True), Graph([y])
    windows.settle_order(graph)
    with windows.providing(reading, False):
        reading.run()
    assert not group.begun, "at first all parameters are there"

    for trains, own in ((True, graph), (True, graph), (False, reading)):
        group.begun.clear()
        group.arrived = most = 0
        with windows.providing(own, trains):
            own.run()
        assert not held
        assert 8 < len(group.begun) < 16 if trains else len(group.begun) == 8
        if trains:
            assert graph.read(loss).item() == width
            assert all((grad.numpy() == 1).all() for grad in grads.values())
            assert windows.spared_bytes(graph) == (4 - most) * params[0].nbytes > 0
    assert (reading.read(y) == 1).all()

    with pytest.raises(DistributedError, match="between steps"):
        params[0].numpy()
    with pytest.raises(DistributedError, match="between steps"):
        graph.run()
    assert (memory_vector(params[0].node) == 0).any(), "its pages are given back"
    assert (params[1].numpy() == 1 / width).all()
    group.begun.clear()
    group.arrived = 0
    with windows.providing(None, True):  # a rank without a batch takes part
        pass
    assert len(group.begun) > 8
    assert not held
    windows.bring()  # to rank 0
    assert not held
    windows.gather()
    assert windows.is_whole
    assert all((p.numpy() == 1 / width).all() for p in params)


SUMS = """
import numpy as np
from pyggml import distributed as d
group, size = d.init(), d.world_size()
rng = np.random.default_rng(d.rank())
for to in (None, 1):
    plain, kept = np.zeros(1001), np.zeros(1001)
    true, residual = np.zeros(1001), np.zeros(1001, np.float32)
    for step in range(40):
        x = rng.normal(size=1001).astype(np.float32) + 1
        a, b, c = x.copy(), x.copy(), x.copy()
        group.begin_sum(a, to)
        group.begin_sum(b, to, rounds=True)
        group.begin_sum(c, to, rounds=True, residual=residual)
        group.finish()
        true, plain, kept = true + a, plain + b, kept + c
    if to in (None, d.rank()):
        off, fed = abs(plain - true).max(), abs(kept - true).max()
        assert 0 < fed < 0.06 < off, (to, fed, off)
        assert abs(a - b).max() < 0.1
    else:
        assert (a == x).all()
bad = np.array([np.inf, 1.0], np.float32)
group.begin_sum(bad, rounds=True, residual=residual[:2])
group.finish()
assert np.isinf(bad[0]) and np.isfinite(residual).all()
try:
    group.begin_sum(np.ones(3, np.float32), 99)
    group.finish()
except Exception as error:
    assert "RANK" in str(error).upper() or "ROOT" in str(error).upper(), error
else:
    raise AssertionError("a sum to a rank that there is not")
print("done", flush=True)
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_error_feedback_keeps_errors_from_growing(tmp_path: Path) -> None:
    done = run_code(3, tmp_path, SUMS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"] * 3
