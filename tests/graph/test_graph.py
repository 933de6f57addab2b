# SPDX-License-Identifier: MIT
"""Graphs: planned once, run often; gradients added up; what cannot be differentiated."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import DTypeError, GradientError, ShapeError, ops
from pyggml.tensors import record


def test_inputs_change_between_runs() -> None:
    x = pg.zeros((3,))
    y = (x * 2 + 1).sum()
    g = pg.Graph([y])
    for k in range(3):
        x.copy_(np.full(3, k))
        g.run()
        assert g.read(y) == 3 * (2 * k + 1)


def test_a_tensor_can_be_part_of_several_graphs() -> None:
    x = pg.tensor([1.0, 2.0])
    a = x * 3
    b = a + 1
    first, second = pg.Graph([a]), pg.Graph([b])
    second.run()
    first.run()
    assert first.read(a).tolist() == [3, 6]
    assert second.read(b).tolist() == [4, 7]
    del first
    second.run()
    assert second.read(b).tolist() == [4, 7]
    with pytest.raises(KeyError, match="not among"):
        second.read(a)


def test_nothing_is_read_before_the_first_run() -> None:
    y = pg.ones((3,)) * 2.0
    g = pg.Graph([y])
    with pytest.raises(pg.BackendError, match="has not run yet"):
        g.read(y)


def test_gradients_accumulate_over_runs_and_scale_with_the_seed() -> None:
    w, dw, seed = pg.tensor([1.0, 2.0]), pg.zeros((2,)), pg.tensor(0.5)
    x = pg.tensor([3.0, 4.0])
    loss = (w * x).sum()
    g = pg.Graph([loss], loss=loss, grads={w: dw}, loss_grad=seed)
    g.run()
    g.run()
    assert dw.tolist() == [3, 4]
    dw.zero_()
    x.copy_([1, 1])
    seed.copy_(2.0)
    g.run()
    assert dw.tolist() == [2, 2]
    assert g.read(loss) == 3


def test_only_named_parameters_get_gradients() -> None:
    a = pg.tensor([1.0], requires_grad=True)
    b = pg.tensor([2.0], requires_grad=True)
    da = pg.zeros((1,))
    loss = (a * b).sum()
    pg.Graph([], loss=loss, grads={a: da}).run()
    assert da.tolist() == [2]
    assert b.grad is None


def test_effects_run_in_order_after_the_backward() -> None:
    w, dw = pg.tensor([1.0, 2.0]), pg.zeros((2,))
    loss = (w * w).sum()
    step = ops.opt_step_sgd(w, dw, pg.tensor([0.25, 0.0]))
    g = pg.Graph([loss], loss=loss, grads={w: dw}, effects=[step])
    g.run()
    assert g.read(loss) == 5
    assert w.tolist() == [0.5, 1.0]
    assert dw.tolist() == [2, 4]


def test_many_outputs_and_views_are_readable() -> None:
    x = pg.tensor(np.arange(12.0).reshape(3, 4))
    doubled = x * 2
    outs = [doubled, doubled.T, doubled[1:, 2], x]
    g = pg.Graph(outs)
    g.run()
    want = np.arange(12.0).reshape(3, 4)
    for t, w in zip(outs, [want * 2, want.T * 2, want[1:, 2] * 2, want], strict=True):
        np.testing.assert_array_equal(g.read(t), w)


def test_memory_is_reused_along_the_graph() -> None:
    x = pg.zeros((1000, 100))
    t = x
    for _ in range(50):
        t = ops.gelu(t)
    g = pg.Graph([t])
    assert 0 < g.memory_bytes < 4 * x.nbytes
    assert g.n_nodes == 50


@pytest.mark.parametrize(
    ("loss", "error", "words"),
    [
        (lambda w: w * 2, ShapeError, "one element"),
        (lambda w: (w.astype("f16") * w.astype("f16")).astype("f32").sum(), GradientError, "f16"),
        (
            lambda w: record(pg.lib.ggml_pad_reflect_1d, [w, 1, 1], (4,)).sum(),
            GradientError,
            "PAD_REFLECT_1D.*no gradient",
        ),
        (lambda w: pg.ones((2,)).sum(), GradientError, "no parameter"),
    ],
)
def test_what_has_no_gradient_says_so(loss, error, words) -> None:
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(error, match=words):
        pg.Graph([], loss=loss(w), grads={w: pg.zeros((2,))})


def test_bad_requests() -> None:
    w = pg.tensor([1.0, 2.0])
    loss = (w * w).sum()
    with pytest.raises(ValueError, match="at least one output"):
        pg.Graph([])
    with pytest.raises(GradientError, match="no parameter given"):
        loss.backward()
    with pytest.raises(ValueError, match="need a loss"):
        pg.Graph([loss], grads={w: pg.zeros((2,))})
    with pytest.raises(ShapeError, match="of its shape"):
        pg.Graph([loss], loss=loss, grads={w: pg.zeros((3,))})
    with pytest.raises(DTypeError, match="must be f32"):
        pg.tensor([1.0], "f16").requires_grad = True
    with pytest.raises(ValueError, match="only stored"):
        (w * 2).requires_grad = True


def test_compile_records_once_per_shape() -> None:
    calls = []
    w = pg.tensor([2.0])

    @pg.compile
    def fn(x: pg.Tensor) -> tuple[pg.Tensor, pg.Tensor]:
        calls.append(x.shape)
        return x * w, x.sum()

    for n in (3, 4, 3, 3):
        product, total = fn(np.arange(float(n)))
        np.testing.assert_array_equal(product.numpy(), np.arange(n) * 2)
        assert total.item() == sum(range(n))
    assert calls == [(3,), (4,)]
    w.copy_([5.0])
    assert fn(np.ones(3))[0].tolist() == [5, 5, 5]


def test_the_same_bits_every_time() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(200, 300)), rng.normal(size=(300, 150))
    w = pg.tensor(a, requires_grad=True)
    loss = ops.gelu(w @ b).sum()
    dw = pg.zeros((200, 300))
    g = pg.Graph([loss], loss=loss, grads={w: dw})
    seen = set()
    for _ in range(3):
        dw.zero_()
        g.run()
        seen.add((g.read(loss).tobytes(), dw.numpy().tobytes()))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss_grad": 3}, "loss_grad"),
        ({"grads": [1]}, "grads"),
        ({"effects": pg.ones((2,))}, r"effects must be a list .*; got Tensor; pass effects=\[x\]"),
        ({"outputs": pg.ones((2,))}, r"outputs must be a list .*; got Tensor; pass outputs=\[x\]"),
        ({"outputs": None}, r"outputs must be a list of Tensors; got NoneType"),
    ],
)
def test_what_a_graph_refuses(arguments, words) -> None:
    x = pg.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    given = {"outputs": [loss], "loss": loss, "grads": {x: pg.zeros((2,))}, **arguments}
    with pytest.raises(TypeError, match=words):
        pg.Graph(**given)
