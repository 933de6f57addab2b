# SPDX-License-Identifier: MIT
from __future__ import annotations

import copy
import gc
import json
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyggml.data import Loader, Prefetch, RandomWindows, TokenDataset, prefetch


def loader(random: bool = True) -> Loader:
    ids = np.arange(41)
    return Loader(RandomWindows(ids, 4) if random else TokenDataset(ids, 4), 3, seed=5)


OTHERS: set[threading.Thread] = set()  # of tests before, whose tracebacks keep them


@pytest.fixture(autouse=True)
def _others() -> None:
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def threads() -> list[threading.Thread]:
    return [t for t in set(threading.enumerate()) - OTHERS if t.name == "pyggml-prefetch"]


def same(a: Any, b: Any) -> None:
    for ours, theirs in zip(a, b, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(st.integers(0, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_resumes_exactly_with_and_without(taken: int, depth: int, random: bool, back: bool) -> None:
    plain = loader(random)
    with Prefetch(loader(random), depth) as batches:
        for _ in range(taken):
            same(next(plain), next(batches))
        state = json.loads(json.dumps(batches.state_dict()))
        assert state == plain.state_dict()
        if back:  # the prefetched run goes on without
            resumed: Any = loader(random)
        else:
            resumed = Prefetch(loader(random), depth)
        resumed.load_state_dict(state)
        for _ in range(7):
            batch = next(plain)
            same(batch, next(batches))
            same(batch, next(resumed))
        if not back:
            resumed.close()


def test_a_loader_goes_on_where_the_reader_stopped() -> None:
    inner, plain = loader(), loader()
    with Prefetch(inner, 3) as batches:
        for _ in range(5):
            same(next(plain), next(batches))
        assert (batches.epoch, batches.position) == (plain.epoch, plain.position)
    assert inner.state_dict() == plain.state_dict()
    same(next(inner), next(plain))
    same(next(batches), next(plain))  # and prefetching may go on after
    batches.close()
    batches.close()


def test_it_stands_for_its_loader() -> None:
    inner = loader()
    with Prefetch(inner) as batches:
        assert len(batches) == len(inner)
        assert batches.dataset.seq_len == 4
        assert batches.batch_size == 3
        next(batches)
        state = batches.state_dict()
        assert len(list(batches.once())) == len(list(inner.once()))
        assert batches.state_dict() == state
        assert len(list(batches)) == len(inner)  # an epoch of its own
        with pytest.raises(AttributeError):
            _ = batches.nothing


class Failing:
    """A loader that fails at its third batch, twice."""

    def __init__(self, error: BaseException) -> None:
        self.at, self.left, self.error = 0, 2, error

    def __next__(self) -> int:
        if self.at == 2 and self.left:
            self.left -= 1
            raise self.error
        self.at += 1
        return self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("error", [ValueError("bad line"), KeyboardInterrupt(), MemoryError()])
def test_exceptions_reach_the_step_that_wanted_the_batch(error: BaseException) -> None:
    gc.collect()  # one that an earlier test dropped
    with Prefetch(Failing(error), depth=4) as batches:
        assert [next(batches), next(batches)] == [1, 2]
        for _ in range(2):
            with pytest.raises(type(error)) as raised:
                next(batches)
            assert raised.value is error
            assert batches.state_dict() == {"at": 2}
        assert next(batches) == 3
    assert threads() == []


def test_without_a_thread_batches_are_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    plain, batches = loader(), Prefetch(loader())
    with pytest.warns(RuntimeWarning, match="no thread could be started .*; each step waits"):
        same(next(plain), next(batches))
    for _ in range(7):
        same(next(plain), next(batches))
        assert batches.state_dict() == plain.state_dict()
    with pytest.warns(RuntimeWarning):
        assert len(list(batches)) == len(plain)
    ending = Prefetch(Failing(StopIteration()))
    with pytest.warns(RuntimeWarning):
        assert list(ending) == [1, 2]


def test_loaders_may_end() -> None:
    with Prefetch(Failing(StopIteration())) as batches:
        assert list(batches) == [1, 2]


def test_no_thread_is_left() -> None:
    gc.collect()  # one that an earlier test dropped
    assert threads() == []
    batches = Prefetch(loader())
    assert threads() == []  # nothing before the first batch
    next(batches)
    assert len(threads()) == 1
    batches.close()
    assert threads() == []
    next(batches)
    del batches
    gc.collect()
    assert threads() == []


def test_a_refused_state_changes_nothing() -> None:
    plain = loader()
    with Prefetch(loader()) as batches:
        same(next(batches), next(plain))
        with pytest.raises(ValueError, match="seed must be as when"):
            batches.load_state_dict({**batches.state_dict(), "seed": 77})
        same(next(batches), next(plain))


class Clock:
    """Stands for the module `time`: its seconds pass when a test says so."""

    def __init__(self) -> None:
        self.now_s, self.asked = 0.0, threading.Semaphore(0)

    def perf_counter(self) -> float:
        self.asked.release()
        return self.now_s


class Told(Failing):
    """A loader that takes two seconds for a batch, and begins when it may."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(ValueError())
        self.clock, self.may = clock, threading.Semaphore(0)

    def __next__(self) -> int:
        self.may.acquire()
        self.clock.now_s += 2
        self.at += 1
        return self.at


def test_the_wait_is_measured_and_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own: a real one tells how busy the machine is, too."""
    clock = Clock()
    monkeypatch.setattr(prefetch, "time", clock)
    inner = Told(clock)
    batches = Prefetch(inner, depth=2)

    def made_while_the_reader_waits() -> None:
        clock.asked.acquire()  # by the reader, before it begins to wait
        inner.may.release()

    for n in range(1, 4):
        helper = threading.Thread(target=made_while_the_reader_waits)
        helper.start()
        assert next(batches) == n
        helper.join()
        clock.asked.acquire()  # by the reader, after
        assert batches.wait_s == 2 * n
    for n in range(4, 7):
        inner.may.release()
        assert batches._thread is not None
        while batches._thread._made.empty():
            time.sleep(0.001)
        assert next(batches) == n
        assert batches.wait_s == 6  # it was ready
    inner.may.release(3)  # what the thread waits for would keep it from its end
    batches.close()


def test_a_loader_measures_its_wait() -> None:
    plain = loader()
    assert plain.wait_s == 0
    next(plain)
    assert plain.wait_s > 0


@pytest.mark.slow
def test_steps_hardly_wait() -> None:
    """Of a training's time, less than two per cent is spent waiting for data."""
    import pyggml as pg
    from pyggml.data import Documents, PackedDataset
    from pyggml.models import build

    rng = np.random.default_rng(0)
    documents = Documents.of([rng.integers(0, 64, n) for n in rng.integers(2, 100, 2000)])
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "context": 128}
    model = build("llama", sizes, vocab_size=64)
    with Prefetch(Loader(PackedDataset(documents, 128), 8)) as batches:
        first = next(batches)
        arrays = {"ids": first.x, "targets": first.y, **first.inputs}
        inputs = {name: pg.tensor(array) for name, array in arrays.items()}
        loss = model.loss(**inputs)
        grads = {p: pg.zeros(p.shape) for p in model.parameters()}
        graph = pg.Graph([loss], loss=loss, grads=grads)
        began, waited = time.perf_counter(), batches.wait_s
        for _ in range(40):
            batch = next(batches)
            for name, array in {"ids": batch.x, "targets": batch.y, **batch.inputs}.items():
                inputs[name].copy_(array)
            graph.run()
        share = (batches.wait_s - waited) / (time.perf_counter() - began)
    assert share < 0.02


def test_a_program_ends_with_a_prefetch_running() -> None:
    text = """
import numpy as np
from pyggml.data import Loader, Prefetch, TokenDataset
batches = Prefetch(Loader(TokenDataset(np.arange(101), 10), 4))
next(batches)
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=900, check=True
    )
    assert (done.stdout, done.stderr) == ("end\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="handlers do not wait")
def test_a_signal_at_the_start_leaves_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler raises, and the batches are those of one thread."""
    gc.collect()
    start, left = threading.Thread.start, [3]

    def starts(thread: threading.Thread) -> None:
        start(thread)
        if left[0] and thread.name == "pyggml-prefetch":
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "start", starts)
    plain, batches = loader(), Prefetch(loader())
    raised = 0
    for _ in range(9):
        state = batches.state_dict()
        try:
            batch = next(batches)
        except KeyboardInterrupt:
            raised += 1
            batches.load_state_dict(state)
            batch = next(batches) if not left[0] else None
        if batch is not None:
            same(next(plain), batch)
        assert len(threads()) <= 1
    assert (raised, left[0]) == (3, 0)
    batches.close()
    assert threads() == []


def test_a_copy_goes_on_where_the_reader_stands() -> None:
    plain, batches = loader(), Prefetch(loader())
    for _ in range(5):
        same(next(plain), next(batches))
    copies = [copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))]
    for _ in range(5):
        batch = next(plain)
        for each in (batches, *copies):
            same(batch, next(each))


class Counting(Failing):
    """A loader whose state is a number."""

    def state_dict(self) -> int:  # type: ignore[override]
        return self.at

    def load_state_dict(self, state: int) -> None:  # type: ignore[override]
        self.at = state


def test_any_object_may_be_a_state() -> None:
    batches = Prefetch(Counting(ValueError("once")))
    assert [next(batches), next(batches), batches.state_dict()] == [1, 2, 2]
    with pytest.raises(ValueError, match="once"):
        next(batches)
    batches.load_state_dict(7)
    assert next(batches) == 8
    with pytest.raises(TypeError, match="has no len"):
        len(batches)


class Shuffled:
    """A loader that goes on in the list that is its state."""

    def __init__(self) -> None:
        self.order = [1]

    def __next__(self) -> list[int]:
        self.order.append(self.order[-1] * 3 % 17)
        return list(self.order)

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_state_does_not_go_on_with_the_loader(depth: int) -> None:
    plain, batches = Shuffled(), Prefetch(Shuffled(), depth)
    for _ in range(4):
        assert next(plain) == next(batches)
        state = copy.deepcopy(batches.state_dict())
        assert state == plain.state_dict()
        batches.load_state_dict(state)
    batches.close()
    assert batches.loader.order == plain.order


def test_generators_are_no_loaders() -> None:
    def endless() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"state_dict .*as Loader has; got generator"):
        Prefetch(endless())
    with pytest.raises(ValueError, match="depth"):
        Prefetch(loader(), 0)


class Lines:
    """Raises KeyboardInterrupt at the n-th line of the modules that hold locks."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in (queue.__file__, threading.__file__, prefetch.__file__):
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_line_leaves_no_lock() -> None:
    """The thread ends, and batches go on with the one that was not given out."""
    plain, batches = loader(), Prefetch(loader())
    for n in range(1, 1000):
        state, lines, before = batches.state_dict(), Lines(n), sys.gettrace()
        batch = None
        try:
            sys.settrace(lines)
            batch = next(batches)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        closing = threading.Thread(target=batches.close, daemon=True)
        closing.start()
        closing.join(20.0)
        assert not closing.is_alive(), n
        if batch is None:
            batches.load_state_dict(state)
            batch = next(batches)
        same(next(plain), batch)
        if lines.left > 0:
            break
    assert n > 5
