# SPDX-License-Identifier: MIT
"""What was recorded of a stored tensor, and is read after the tensor has been overwritten."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import AnomalyError, GradientError, OutOfMemoryError, RecordingError
from pyggml.graph import attach_update
from pyggml.graph.memory_plan import Activations
from pyggml.nn import functional as F
from pyggml.optim import EMA, SGD
from pyggml.tensors.live import hold, release

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = np.arange(8) % 3


def make():
    pg.seed(0)
    model = nn.Sequential(nn.Linear(4, 3))
    return model, SGD(model, lr=0.5)


def loss_of(model):
    return F.cross_entropy(model(pg.tensor(X)), pg.tensor(Y))


WRITES = {
    "copy_": lambda a: a.copy_([5.0, 6.0]),
    "zero_": lambda a: a.zero_(),
    "in place": lambda a: pg.ops.cpy(pg.tensor([5.0, 6.0]), a).numpy(),
    "graph": lambda a: pg.Graph([], effects=[pg.ops.cpy(pg.tensor([5.0, 6.0]), a)]).run(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("times", [1, 3])  # the first call of a layout is recorded at once
def test_numbers_are_those_of_the_call(write: Callable[[pg.Tensor], object], times: int) -> None:
    a, b = pg.tensor([1.0, 2.0]), pg.tensor([1.0, 1.0])
    for _ in range(times):
        y, through_a_view, other = a * 2.0, a[1:] * 3.0, b * 2.0
        later = (y + 1.0).sum()
    write(a)
    assert y.tolist() == [2.0, 4.0]
    assert through_a_view.tolist() == [6.0]
    assert later.item() == 8.0
    assert not other.is_computed  # nothing that it reads was written
    assert (a * 2.0).tolist() == [2.0 * n for n in a.tolist()]


def test_a_view_of_a_stored_tensor_has_its_numbers_at_any_time() -> None:
    a = pg.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(2):
        row, turned = a[0], a.T
    row.numpy()
    a.copy_([[5.0, 6.0], [7.0, 8.0]])
    assert row.tolist() == [5.0, 6.0]
    assert turned.tolist() == [[5.0, 7.0], [6.0, 8.0]]


def test_another_thread_writes_before_or_after_a_reading(monkeypatch) -> None:
    module = sys.modules["pyggml.graph.once"]
    before_run, x = module.end_updates, pg.tensor([1.0])
    y = x * 2.0
    writer = threading.Thread(target=lambda: x.copy_([5.0]))

    def write_now(*args: object) -> None:
        before_run(*args)
        if writer.ident is None:  # between the check of what y reads and the run
            writer.start()
            writer.join(0.2)

    monkeypatch.setattr(module, "end_updates", write_now)
    assert y.tolist() == [2.0]
    writer.join()
    assert x.tolist() == [5.0]


def test_a_target_network_keeps_the_values_of_before_the_update() -> None:
    model, _ = make()
    target = nn.Sequential(nn.Linear(4, 3)).requires_grad_(False)
    for _ in range(2):
        before = target(pg.tensor(X)).numpy()
        values = target(pg.tensor(X))
        best = values.max(dim=1)[0]
        for own, other in zip(target.parameters(), model.parameters(), strict=True):
            own.copy_(own * 0.9 + other * 0.1)
        np.testing.assert_array_equal(values.numpy(), before)
        np.testing.assert_array_equal(best.numpy(), before.max(1))
        after = target(pg.tensor(X))
        target.load_state_dict(model.state_dict())
        assert not np.array_equal(after.numpy(), before)
        np.testing.assert_array_equal(target(pg.tensor(X)).numpy(), model(pg.tensor(X)).numpy())


def test_statistics_that_are_loaded_into_a_batch_norm() -> None:
    norm = nn.BatchNorm1d(4).eval()
    before = norm(pg.tensor(X)).numpy()
    for _ in range(2):
        y = norm(pg.tensor(X))
        norm.load_state_dict({**norm.state_dict(), "running_mean": pg.full(4, 9.0)})
        np.testing.assert_array_equal(y.numpy(), before)
        norm.load_state_dict({**norm.state_dict(), "running_mean": pg.zeros(4)})


def test_averaged_weights() -> None:
    model, _ = make()
    ema = EMA(model, decay=0.5)
    y = model(pg.tensor(X))
    before = model(pg.tensor(X)).numpy()
    model[0].weight.copy_(np.ones((3, 4), np.float32))
    with ema.applied():
        inside = model(pg.tensor(X))
    np.testing.assert_array_equal(y.numpy(), before)
    np.testing.assert_array_equal(inside.numpy(), before)
    assert not np.array_equal(model(pg.tensor(X)).numpy(), before)


def test_gradients() -> None:
    model, optimizer = make()
    weight = model[0].weight
    loss_of(model).backward()
    doubled, norm = weight.grad * 2.0, (weight.grad * weight.grad).sum()
    want = weight.grad.numpy()
    loss_of(model).backward()
    np.testing.assert_array_equal(doubled.numpy(), 2.0 * want)
    tripled = weight.grad * 3.0
    sums = weight.grad.numpy()
    optimizer.zero_grad()
    np.testing.assert_array_equal(tripled.numpy(), 3.0 * sums)
    assert norm.item() == pytest.approx((want * want).sum(), rel=1e-5)


def test_what_no_backward_computed_is_computed_before_the_step() -> None:
    model, optimizer = make()
    want, before = loss_of(model).item(), model(pg.tensor(X)).numpy()
    loss, other = (loss_of(model) for _ in range(2))
    logits = model(pg.tensor(X))
    best = logits.argmax(1)
    loss.backward()
    optimizer.step()
    assert loss.item() == other.item() == want
    np.testing.assert_array_equal(logits.numpy(), before)
    np.testing.assert_array_equal(best.numpy(), before.argmax(1))
    assert "Tensor" in repr(logits) or "tensor" in repr(logits)


def test_what_is_read_or_detached_before_stays() -> None:
    model, optimizer = make()
    x = pg.tensor(X)
    read, cut = model(x), model(x).detach()
    before = read.numpy()
    F.cross_entropy(model(x), pg.tensor(Y)).backward()
    optimizer.step()
    np.testing.assert_array_equal(read.numpy(), before)
    np.testing.assert_array_equal(cut.numpy(), before)
    assert not np.array_equal(model(x).numpy(), before)


def test_sums_over_the_steps() -> None:
    model, optimizer = make()
    running: pg.Tensor | float = 0.0
    after: pg.Tensor | float = 0.0
    total, losses, want = pg.tensor(0.0), [], 0.0
    hits: list[pg.Tensor] = []
    want_hits = []
    for _ in range(5):
        logits = model(pg.tensor(X))
        loss = F.cross_entropy(logits, pg.tensor(Y))
        loss.backward()
        running += loss
        losses.append(loss)
        total = total + loss.detach()
        hits.append((logits.argmax(1) == pg.tensor(Y)).mean())
        want_hits.append((logits.numpy().argmax(1) == Y).mean())
        optimizer.step()
        optimizer.zero_grad()
        after += loss
        want += loss.item()
    for found in (running, sum(losses), total, after):
        assert found.item() == pytest.approx(want, rel=1e-6)
    np.testing.assert_allclose([h.item() for h in hits], want_hits, rtol=1e-6)


def test_a_sum_over_the_steps_keeps_no_batch() -> None:
    model, optimizer = make()
    running: pg.Tensor | float = 0.0
    batches, losses = [], []
    for _ in range(4):
        x = pg.tensor(X)
        batches.append(weakref.ref(x.buffer))
        logits = model(x)
        loss = F.cross_entropy(logits, pg.tensor(Y))
        loss.backward()
        running += loss
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
    del x, logits, loss
    assert [batch() for batch in batches] == [None] * 4
    assert running.item() == pytest.approx(sum(losses).item(), rel=1e-6)


def test_a_tensor_that_nobody_holds_is_not_computed() -> None:
    a, computed = pg.tensor([1.0]), []
    count = pg.zeros(1)
    y = attach_update(a * 2.0, pg.ops.cpy(count + 1.0, count))
    del y
    a.copy_([2.0])
    assert count.tolist() == [0.0]
    y = attach_update(a * 2.0, pg.ops.cpy(count + 1.0, count))
    z = y + 1.0
    a.copy_([3.0])  # computes both, together
    assert (y.tolist(), z.tolist(), count.tolist(), computed) == ([4.0], [5.0], [1.0], [])


def test_readers_of_what_a_run_itself_writes() -> None:
    count = pg.tensor([1.0])
    y = attach_update(count * 2.0, pg.ops.cpy(count + 1.0, count))
    z = y + 1.0
    assert y.tolist() == [2.0]
    assert z.tolist() == [3.0]
    assert count.tolist() == [2.0]


def test_a_loss_of_before_the_step_has_no_gradient_of_then() -> None:
    model, optimizer = make()
    first, second = (loss_of(model) for _ in range(2))
    first.backward()
    optimizer.step()
    for loss in (second, second + loss_of(model)):
        with pytest.raises(GradientError, match=r"test_overwritten\.py:\d+ recorded before"):
            loss.backward()
    (second.detach() + loss_of(model)).backward()


def test_a_result_that_a_graph_computes_is_not_read_with_other_inputs() -> None:
    x = pg.tensor([1.0])
    y = x * 2.0
    graph = pg.Graph([y])
    x.copy_([4.0])
    graph.run()
    assert graph.read(y).tolist() == [8.0]
    with pytest.raises(RecordingError, match=r"test_overwritten\.py:\d+ recorded an op"):
        y.numpy()


def test_an_input_that_is_written_between_forward_and_backward() -> None:
    model, _ = make()
    x = pg.tensor(X)
    loss = F.cross_entropy(model(x), pg.tensor(Y))
    want = loss_of(model).item()
    x.zero_()
    assert loss.item() == want
    with pytest.raises(GradientError, match="overwritten"):
        loss.backward()


def test_a_copy_of_a_recorded_tensor_is_held_as_well() -> None:
    import copy

    a = pg.tensor([1.0])
    y = a * 2.0
    z = copy.copy(y)
    del y
    a.zero_()
    assert z.tolist() == [2.0]


def test_a_copy_of_a_view_of_a_stored_tensor_is_a_view_as_well() -> None:
    import copy

    a = pg.tensor([[1.0, 2.0], [3.0, 4.0]])
    z = copy.copy(a.T)
    a.zero_()
    assert z.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_backward_that_fails_changes_nothing() -> None:
    a = pg.tensor([1.0, 2.0])
    y = a + a
    loss = (y * y).sum()
    with pytest.raises(GradientError, match="requires_grad=True"):
        loss.backward()
    a.zero_()
    assert (y.tolist(), loss.item()) == ([2.0, 4.0], 20.0)


ALONE = {
    "cat": lambda x: pg.cat([x]),
    "stack": lambda x: pg.stack([x]),
    "repeat": lambda x: x.repeat(1, 1),
    "flip": lambda x: x.flip(()),
    "pow": lambda x: x**1,
    "prod": lambda x: x.prod(0),
}


@pytest.mark.parametrize("op", ALONE.values(), ids=ALONE)
def test_an_op_that_changes_nothing_is_no_view(op: Callable[[pg.Tensor], pg.Tensor]) -> None:
    for _ in range(2):
        x = pg.tensor([[1.0, 2.0]], requires_grad=True)
        y = op(x)
        x.zero_()
        assert y.flatten().tolist() == [1.0, 2.0]
        op(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[1.0, 1.0]]


def test_what_another_thread_records_during_a_write_does_not_stop_the_next() -> None:
    """It is known to the program only after the first write; the thread is told when it reads."""
    w = pg.tensor([1.0, 2.0])
    late = w * 2
    release(late)
    w.copy_([3.0, 4.0])
    hold(late, [w.node])
    other = w * 3
    w.copy_([5.0, 6.0])
    assert other.tolist() == [9.0, 12.0]
    with pytest.raises(RecordingError, match=r"test_overwritten\.py:\d+ recorded an op"):
        late.numpy()


@pytest.mark.parametrize("write", [WRITES["copy_"], WRITES["zero_"], WRITES["graph"]])
def test_a_refused_write_changes_nothing(write: Callable[[pg.Tensor], object]) -> None:
    a = pg.tensor([-1.0, 2.0])
    y, bad = a * 2.0, pg.ops.log(a)
    with pg.detect_anomaly(), pytest.raises(AnomalyError, match="LOG made NaN"):
        write(a)
    assert a.tolist() == [-1.0, 2.0]
    write(a)
    assert y.tolist() == [-2.0, 4.0]
    assert np.isnan(bad.numpy()[0])


def test_a_read_that_fails_leaves_the_tensor_to_be_computed() -> None:
    a = pg.tensor([-1.0, 2.0])
    y = pg.ops.log(a) + 1.0
    with pg.detect_anomaly(), pytest.raises(AnomalyError):
        y.numpy()
    a.zero_()
    assert y.numpy()[1] == np.float32(1.0) + np.log(np.float32(2.0))


def test_a_read_without_memory_carries_out_its_updates_once(monkeypatch) -> None:
    count = pg.zeros(2)
    y = attach_update(pg.ops.exp(count), pg.ops.cpy(count + 1.0, count))

    take, calls = Activations.take, []

    def none_left(self: Activations, plan: object) -> object:
        calls.append(plan)
        if len(calls) > 1:  # the run, not the graph that it is of
            raise OutOfMemoryError("graph: cpu could not allocate the activations")
        return take(self, plan)

    with monkeypatch.context() as short:
        short.setattr(Activations, "take", none_left)
        with pytest.raises(OutOfMemoryError):
            y.numpy()
    assert count.tolist() == [0.0, 0.0]
    assert y.tolist() == [1.0, 1.0]
    assert count.tolist() == [1.0, 1.0]


def test_what_else_reads_the_statistics_has_those_of_before() -> None:
    first, second = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    x = pg.tensor(X)
    y = first(x)
    z = second(x + first.running_mean)
    y.numpy()
    np.testing.assert_allclose(first.running_mean.numpy(), 0.1 * X.mean(0), rtol=1e-5)
    np.testing.assert_allclose(second.running_mean.numpy(), 0.1 * X.mean(0), rtol=1e-5)
    np.testing.assert_allclose(z.numpy(), nn.BatchNorm1d(4)(x).numpy(), rtol=1e-5, atol=1e-6)


def test_numbers_that_cannot_be_copied_out_are_there_later(monkeypatch) -> None:
    a = pg.tensor([1.0, 2.0])
    y = a * 3.0

    def none_left(*_: object) -> None:
        raise OutOfMemoryError("numpy: 8 bytes are more than is free")

    with monkeypatch.context() as short:
        short.setattr(pg.Graph, "read", none_left)
        with pytest.raises(OutOfMemoryError):
            y.numpy()
    a.zero_()
    assert y.tolist() == [3.0, 6.0]


def test_numbers_of_a_step_stay_where_the_next_one_has_no_memory(monkeypatch) -> None:
    w = nn.Parameter([1.0, 2.0])
    held, values, calls = [], [], list[pg.Tensor]()
    fetch = pg.Graph.fetch

    def fails_first(self: pg.Graph, t: pg.Tensor) -> pg.Tensor:
        calls.append(t)
        if len(calls) == 1:
            raise OutOfMemoryError("buffer: cpu cannot allocate 8 bytes")
        return fetch(self, t)

    for i in range(5):
        y = w * 3.0
        held.append((y, y * 2.0))
        values.append(w.numpy() * 3.0)
        if i == 3:
            monkeypatch.setattr(pg.Graph, "fetch", fails_first)
            with pytest.raises(OutOfMemoryError):
                (held[-1][1] * w).sum().backward()
        (held[-1][1] * w).sum().backward()
        w.copy_(w.numpy() + 1.0)
    for (y, twice), value in zip(held, values, strict=True):
        assert y.tolist() == value.tolist()
        assert twice.tolist() == (2.0 * value).tolist()


def test_what_reads_the_target_of_an_update_in_its_graph_has_the_numbers_of_before() -> None:
    a = pg.zeros(2)
    y = attach_update(pg.ops.exp(a), pg.ops.cpy(a + 1.0, a))
    z = a * 10.0
    assert (y + z).tolist() == [1.0, 1.0]
    assert (z.tolist(), a.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    norm = nn.BatchNorm1d(4)
    x = pg.tensor(X)
    apart = (norm.train()(x) - norm.eval()(x)).numpy()
    np.testing.assert_allclose(apart, nn.BatchNorm1d(4)(x).numpy() - X, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * X.mean(0), rtol=1e-5)
