# SPDX-License-Identifier: MIT
from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.backend.headers import op_name
from pyggml.graph import spare_memory
from pyggml.graph.passes import recompute as passes
from pyggml.models import GPT2, GPT2Config, Llama, LlamaConfig
from pyggml.optim import SGD
from pyggml.tensors.node import listeners
from pyggml.train.step import TrainStep

WIDTH = 32


def weights(n: int = 4) -> list[pg.Tensor]:
    rng = np.random.default_rng(1)
    draws = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) * 0.2 for _ in range(n)]
    return [pg.tensor(w, requires_grad=True) for w in draws]


def inputs(rows: int = 256) -> pg.Tensor:
    return pg.tensor(np.random.default_rng(2).standard_normal((rows, WIDTH)).astype(np.float32))


def layer(x: pg.Tensor, a: pg.Tensor, b: pg.Tensor) -> pg.Tensor:
    return ops.gelu(ops.linear(ops.gelu(ops.linear(x, a)), b))


def plain(fn, *args):
    return fn(*args)


def train(call) -> tuple[pg.Graph, float, list[np.ndarray]]:
    ws = weights()
    h = inputs()
    for i in range(0, len(ws), 2):
        h = call(layer, h, ws[i], ws[i + 1])
    loss = (h * h).sum()
    grads = {w: pg.zeros(w.shape) for w in ws}
    graph = pg.Graph([loss], loss=loss, grads=grads)
    graph.run()
    return graph, float(graph.read(loss)), [g.numpy() for g in grads.values()]


def test_the_same_bits_in_less_memory():
    all_kept, loss, grads = train(plain)
    graph, again, grads_again = train(pg.checkpoint)
    assert again == loss
    for g, h in zip(grads, grads_again, strict=True):
        np.testing.assert_array_equal(g, h)
    assert graph.n_nodes > all_kept.n_nodes
    assert graph.memory_bytes < 0.7 * all_kept.memory_bytes


def test_what_is_computed_again_can_be_seen():
    with pg.profile() as p:
        train(plain)
    with pg.profile() as q:
        train(pg.checkpoint)
    counts = [{s.op: s.calls for s in profile.by_op()} for profile in (p, q)]
    assert counts[0]["GELU"] == 4
    # The last activation of a block is its output, which is kept.
    assert counts[1]["GELU"] == 6
    assert counts[1]["MUL_MAT"] == counts[0]["MUL_MAT"] + 4
    assert counts[1]["GELU_BACK"] == counts[0]["GELU_BACK"]


def test_nested_and_used_twice():
    def pair(x, a, b):
        h = pg.checkpoint(layer, x, a, b)
        return h + pg.checkpoint(layer, h, b, a) * h

    _, loss, grads = train(lambda fn, *args: pair(*args))
    _, again, grads_again = train(lambda fn, *args: pg.checkpoint(pair, *args))
    assert again == loss
    for g, h in zip(grads, grads_again, strict=True):
        np.testing.assert_array_equal(g, h)


def test_several_outputs_and_views():
    def split(x):
        y = ops.gelu(x)
        return [y[:, :16], ops.gelu(y.permute(1, 0))[16:].permute(1, 0)]

    def run(call):
        (w,) = weights(1)
        left, right = call(split, ops.linear(inputs(), w))
        (left * right).sum().backward()
        return w.grad.numpy()

    np.testing.assert_array_equal(run(plain), run(pg.checkpoint))


def _operations(call) -> int:
    """Ops that a loss and its gradients take, with `call` for each of three layers."""
    with pg.profile() as p:
        train(call)
    return len(p.records)


def test_views_keep_nothing():
    def reshaped(fn, *args):
        y = pg.recompute(fn(*args))
        return y.reshape(y.shape[::-1]).reshape(y.shape)

    def memory(call):
        return train(call)[0].memory_bytes

    def marked(fn, *args):
        return pg.recompute(fn(*args))

    assert memory(reshaped) == memory(marked) < memory(plain)


def test_a_view_that_leaves_is_kept():
    def view(fn, *args):
        y = fn(*args)
        return y.reshape(y.shape[::-1]).reshape(y.shape)

    def viewed(fn, *args):
        return pg.checkpoint(view, fn, *args)

    # Not from layer to layer down to the input: each is computed twice, no more.
    assert _operations(viewed) == _operations(pg.checkpoint)


def test_dropout_draws_the_same_mask_again():
    seed = pg.tensor(np.array([7, 0], np.int32))

    def noisy(x, a):
        return ops.gelu(ops.dropout(ops.linear(x, a), 0.5, seed))

    def run(call):
        (w,) = weights(1)
        call(noisy, inputs(), w).sum().backward()
        return w.grad.numpy()

    np.testing.assert_array_equal(run(plain), run(pg.checkpoint))


def test_one_tensor():
    def run(mark):
        (w,) = weights(1)
        (mark(ops.gelu(ops.linear(inputs(), w))) * 2.0).sum().backward()
        return w.grad.numpy()

    np.testing.assert_array_equal(run(lambda t: t), run(pg.recompute))
    with pytest.raises(ValueError, match="stored"):
        pg.recompute(inputs())


def test_what_is_read_is_kept():
    (w,) = weights(1)
    inner = []

    def fn(x):
        inner.append(ops.gelu(ops.linear(x, w)))
        return inner[0] * 2.0

    loss = pg.checkpoint(fn, inputs()).sum()
    graph = pg.Graph([loss, inner[0]], loss=loss, grads={w: pg.zeros(w.shape)})
    graph.run()
    want = ops.gelu(ops.linear(inputs(), w)).numpy()
    np.testing.assert_array_equal(graph.read(inner[0]), want)


def test_in_place_ops_are_refused():
    (w,) = weights(1)
    target = pg.zeros((256, WIDTH))

    def writes(x):
        return ops.cpy(ops.linear(x, w), target) * 2.0

    loss = pg.checkpoint(writes, inputs()).sum()
    with pytest.raises(ValueError, match=r"CPY, recorded at .*test_recompute.py.*outside"):
        pg.Graph([loss], loss=loss, grads={w: pg.zeros(w.shape)})


def test_an_exception_ends_it():
    with pytest.raises(KeyError):
        pg.checkpoint(lambda: {}["missing"])
    assert not listeners.entries


def test_anomalies_in_the_second_computation_name_the_line():
    def fn(x, a):
        return ops.linear(x, a) * 2.0

    (w,) = weights(1)
    loss = pg.checkpoint(lambda x: ops.gelu(fn(x, w)), inputs()).sum()
    graph = pg.Graph([loss], loss=loss, grads={w: pg.zeros(w.shape)})
    with pg.detect_anomaly():
        graph.run()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT2(GPT2Config(64, context=32, n_embd=32, n_layer=3, n_head=2)),
        lambda: Llama(LlamaConfig(64, context=32, n_embd=32, n_layer=3, n_head=2)),
    ],
    ids=["gpt2", "llama"],
)
def test_models(make):
    ids = np.random.default_rng(0).integers(0, 64, (4, 33)).astype(np.int32)
    found = []
    for checkpointing in (False, True):
        pg.seed(0)
        model = make()
        model.checkpointing = checkpointing
        step = TrainStep(model, SGD(model.parameters(), lr=0.1), clip=1.0)
        results = [step([(ids[:, :-1], ids[:, 1:])]) for _ in range(3)]
        found.append((results, model.state_dict(), step.record((4, 32)).memory_bytes))
    assert found[0][0] == found[1][0]
    for name, value in found[0][1].items():
        np.testing.assert_array_equal(value, found[1][1][name])
    assert found[1][2] < found[0][2]


def test_rows_set_in_a_copy_are_set_again():
    rows = pg.tensor([1])

    def fn(d, s):
        return ops.tanh(ops.set_rows(d * 1.0, s, rows) * d)

    def grads(call):
        d = pg.tensor(np.arange(6.0).reshape(3, 2) / 6, requires_grad=True)
        s = pg.tensor([[0.5, -0.25]], requires_grad=True)
        call(fn, d, s).sum().backward()
        return d.grad.numpy(), s.grad.numpy()

    for got, want in zip(grads(pg.checkpoint), grads(plain), strict=True):
        np.testing.assert_array_equal(got, want)


def test_rows_set_in_place_are_still_refused():
    stored, x = pg.zeros((3, 2)), pg.tensor([[1.0, 2.0]], requires_grad=True)
    y = pg.checkpoint(lambda t: ops.set_rows(stored, t * 2.0, pg.tensor([1])) * 2.0, x)
    with pytest.raises(ValueError, match="writes in place"):
        y.sum().backward()


@pytest.mark.parametrize("share", [0, 1, 3])
def test_results_are_kept_where_there_is_memory(monkeypatch, share):
    """Two results of which the backward reads 32 KiB each: all are kept, or none."""
    size = 256 * WIDTH * 4
    monkeypatch.setattr(passes, "bytes_for_speed", lambda device: share * size)

    def marked(x, a, b):
        return ops.linear(pg.recompute(ops.gelu(ops.linear(x, a))), b)

    def run(call):
        graph, loss, grads = train(call)
        return [op_name(h) for h in graph.headers].count("GELU"), loss, grads

    found, loss, grads = run(lambda fn, *args: marked(*args))
    assert found == (2 if share == 3 else 4)
    monkeypatch.setattr(passes, "bytes_for_speed", lambda device: 0)
    _, expected, others = run(lambda fn, *args: marked(*args))
    assert loss == expected
    for g, h in zip(grads, others, strict=True):
        np.testing.assert_array_equal(g, h)

    # Whatever memory there is, a checkpoint keeps nothing, nor what is recorded to spare memory.
    monkeypatch.setattr(passes, "bytes_for_speed", lambda device: 2**40)
    assert run(lambda fn, *args: pg.checkpoint(marked, *args))[0] == 4
    assert run(spare_memory()(lambda fn, *args: marked(*args)))[0] == 4
