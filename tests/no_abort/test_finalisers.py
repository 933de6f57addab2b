# SPDX-License-Identifier: MIT
"""Finalisers of cycles, of generators and at the exit compute with what dies beside them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.backend import untracked
from pyggml.backend.buffers import Buffer
from pyggml.models import GPT2, GPT2Config
from pyggml.train import TrainStep

from .programs import script
from .test_threads import together

N = 2000


class Last:
    """Calls a function of its cycle when it is finalised."""

    def __init__(self, use: Callable[[], Any], told: list[Any]):
        self.use, self.told, self.me = use, told, self

    def __del__(self) -> None:
        self.told.append(self.use())


def stored() -> Callable[[], Any]:
    t = pg.tensor(np.arange(N, dtype=np.float32))
    return lambda: float(t.numpy().sum())


def mapped() -> Callable[[], Any]:
    t = pg.ones((2**21,))  # in memory that the system maps
    return lambda: float(t.numpy()[:: 2**20].sum()) * N * (N - 1) / 4


def recorded() -> Callable[[], Any]:
    t = (pg.tensor(np.arange(N, dtype=np.float32)) * 2.0).sum() * 0.5
    return t.item


def planned() -> Callable[[], Any]:
    x = pg.tensor(np.arange(N, dtype=np.float32))
    y = (x + x).sum() * 0.5
    graph = pg.Graph([y])
    graph.run()

    def use() -> float:
        first = float(graph.read(y))
        graph.run()
        return (first + float(graph.read(y))) / 2

    return use


def shared() -> Callable[[], Any]:
    """Two graphs that take turns in one memory."""
    x = pg.tensor(np.arange(N, dtype=np.float32))
    y, z = (x + x).sum() * 0.5, (x * 3.0).sum()
    memory = pg.graph.Activations(pg.device("cpu"))
    first, second = pg.Graph([y], activations=memory), pg.Graph([z], activations=memory)

    def use() -> float:
        second.run()
        first.run()
        return float(first.read(y))

    return use


def compiled() -> Callable[[], Any]:
    weight = pg.tensor(np.arange(N, dtype=np.float32))
    f = pg.compile(lambda x: (x * weight).sum())
    f(np.ones(N, np.float32))
    return lambda: f(np.ones(N, np.float32)).item()


def differentiated() -> Callable[[], Any]:
    both = pg.value_and_grad(lambda x: (x * x).sum() * 0.5)
    x = np.sqrt(2 * np.arange(N, dtype=np.float64)).astype(np.float32)

    def use() -> Any:
        return both(x)[0].item()

    return use


def updated() -> Callable[[], Any]:
    """An optimizer's state and the graphs of its steps."""
    weight = nn.Parameter(np.full(N, 1.0))
    optimizer = optim.AdamW([weight], lr=1e-3)

    def use() -> float:
        (weight * 2.0).sum().backward()
        optimizer.step()
        moved = float(weight.numpy().sum())
        return N * (N - 1) / 2 if moved < N else moved

    return use


OWNERS = [stored, mapped, recorded, planned, shared, compiled, differentiated, updated]
WANT = N * (N - 1) / 2


@pytest.mark.parametrize("owner", OWNERS, ids=lambda f: f.__name__)
def test_a_finaliser_in_a_cycle_computes(owner: Callable[[], Callable[[], Any]]) -> None:
    told: list[Any] = []
    for _ in range(3):
        Last(owner(), told)  # made after what it uses, and so finalised after it
        gc.collect()
    assert told == pytest.approx([WANT] * 3, rel=1e-5)


@pytest.mark.parametrize("owner", OWNERS, ids=lambda f: f.__name__)
def test_a_generators_finally_in_a_cycle_computes(owner: Callable[[], Any]) -> None:
    told: list[Any] = []

    def steps(use: Callable[[], Any]) -> Any:
        me = yield
        try:
            yield me
        finally:
            told.append(use())

    gen = steps(owner())
    next(gen)
    gen.send(gen)
    del gen
    gc.collect()
    assert told == pytest.approx([WANT], rel=1e-5)


@pytest.mark.parametrize("owner", OWNERS, ids=lambda f: f.__name__)
def test_a_callback_at_the_end_of_a_cycle_computes(owner: Callable[[], Any]) -> None:
    """The owner ends in the same collection, right after the callback."""
    told: list[Any] = []

    class Cycle:
        pass

    def make() -> weakref.ref[Any]:
        held = {"use": owner()}
        first: Any = Cycle()
        first.me, first.held = first, held
        return weakref.ref(first, lambda _: told.append(held.pop("use")()))

    ref = make()
    gc.collect()
    assert ref() is None
    assert told == pytest.approx([WANT], rel=1e-5)


def test_a_finaliser_brings_its_cycle_back() -> None:
    kept: list[Any] = []

    class Back:
        def __del__(self) -> None:
            kept.append(self)

    def make() -> None:
        use = planned()
        back: Any = Back()
        back.use, back.me = use, back

    make()
    gc.collect()
    gc.collect()
    assert kept[0].use() == kept[0].use() == WANT


def test_a_model_is_saved_by_a_finaliser(tmp_path: Any) -> None:
    path = tmp_path / "m.gguf"
    config = GPT2Config(vocab_size=11, context=8, n_embd=8, n_layer=1, n_head=2)
    want: dict[str, np.ndarray] = {}

    def make() -> None:
        model = GPT2(config)
        step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1))
        x = np.arange(8, dtype=np.int32)[None]
        step([(x, x)])
        want.update({name: p.numpy() for name, p in model.named_parameters()})
        Last(lambda: (step([(x, x)]), model.save(path)), [])

    make()
    gc.collect()
    got = dict(pg.models.load(path)[0].named_parameters())
    assert all(np.isfinite(got[name].numpy()).all() for name in want)
    assert any(not np.array_equal(got[name].numpy(), want[name]) for name in want)


def test_finalisers_in_several_threads() -> None:
    told: list[Any] = []

    def work(owner: Callable[[], Any]) -> None:
        for _ in range(5):
            Last(owner(), told)
            gc.collect()

    together(*(lambda o=owner: work(o) for owner in OWNERS[:6]))
    gc.collect()
    assert told == pytest.approx([WANT] * 30, rel=1e-5)


def test_finalisers_at_the_exit() -> None:
    text = """
x = pg.tensor(np.arange(2000, dtype=np.float32))
y = (x + x).sum()
graph = pg.Graph([y])
f = pg.compile(lambda t: t * x)
f(x)
class Last:
    def __init__(self, *held):
        self.held, self.me = held, self
    def __del__(self, write=os.write):  # the program's names are gone by then
        graph, y, x, f = self.held
        graph.run()
        write(1, b"%d %d\\n" % (graph.read(y), x.numpy()[-1]))
def late(*held):
    try:
        yield
    finally:
        held[0].run()
        os.write(1, b"late %d\\n" % held[0].read(held[1]))
def of_a_module(graph=graph, y=y, x=x, f=f):
    return Last(graph, y, x, f)
cycle, gen, pg.kept = Last(graph, y, x, f), late(graph, y), of_a_module()
next(gen)
"""
    lines = script(text).split("\n")
    assert sorted(lines) == ["", "3998000 1999", "3998000 1999", "late 3998000"]


def test_memory_stays_flat() -> None:
    """What the collector does not see ends with its last user."""
    alive = [0]

    class Counted:
        def __init__(self) -> None:
            alive[0] += 1

        def __del__(self) -> None:
            alive[0] -= 1

    box = untracked.untracked((Counted(), None))
    assert not gc.is_tracked(box)
    assert alive == [1]
    del box
    assert alive == [0]

    kinds = Buffer, type(pg.tensor([1.0]).buffer.memory.item()[0])

    def count() -> list[int]:
        """Return the number of buffers, and of pointers that `ffi.gc` returned."""
        gc.collect()
        types = [type(each) for each in gc.get_objects()]
        return [types.count(kind) for kind in kinds]

    found = []
    for _ in range(6):
        for owner in OWNERS:
            Last(owner(), [])
        found.append(count())
    buffers, pointers = zip(*found[1:], strict=True)
    assert len(set(buffers)) == 1
    # One more in the rounds in which a full context of headers still has tensors; what is lost in
    # each round would be several.
    assert max(pointers) - min(pointers) <= 1


def test_a_graph_inside_of_another_one_is_refused() -> None:
    """An observer, a signal handler or a finaliser that the collector calls in the middle."""
    x = pg.tensor(np.arange(N, dtype=np.float32))
    inner = pg.Graph([x * 3.0])
    raised: list[BaseException] = []

    class Nested:
        error: Exception | None = None

        def before(self, ptr: Any) -> bool:
            try:
                inner.run()
            except pg.BackendError as error:
                raised.append(error)
            return True

        def after(self, ptr: Any) -> bool:
            return True

    with pg.graph.observers.observe(lambda recorded: Nested()):
        y = (x + x).sum().item()
    assert y == 2 * WANT
    assert len(raised) == 2
    inner.run()


def test_a_compiled_function_inside_of_its_own_run_is_refused() -> None:
    f = pg.compile(lambda x: x * 2.0)
    f([1.0])
    raised: list[BaseException] = []

    class Nested:
        error: Exception | None = None

        def before(self, ptr: Any) -> bool:
            try:
                f([5.0])
            except pg.BackendError as error:
                raised.append(error)
            return False

        def after(self, ptr: Any) -> bool:
            return True

    with pg.graph.observers.observe(lambda recorded: Nested()):
        assert f([3.0]).tolist() == [6.0]
    assert raised
    assert f([4.0]).tolist() == [8.0]
