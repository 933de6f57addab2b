# SPDX-License-Identifier: MIT
"""Gradients that are added to others take no memory of their own."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.backend.library import ffi, lib
from pyggml.graph import grad_of

N = 300


def tied(stored: bool) -> tuple[pg.Graph, pg.Tensor, np.ndarray]:
    """An embedding that is the head as well: two products and rows in one gradient."""
    rng = np.random.default_rng(0)
    w = pg.tensor(rng.standard_normal((N, N)).astype(np.float32) * 0.1, requires_grad=True)
    ids = pg.tensor(np.array([3, 3, 0, N - 1], np.int32))
    x = ops.get_rows(w, ids)
    loss = (ops.linear(ops.linear(x, w), w) ** 2).sum()
    grad = pg.zeros((N, N)) if stored else grad_of(w)
    outputs = [loss] if stored else [loss, grad]
    graph = pg.Graph(outputs, loss=loss, grads={w: grad})
    graph.run()
    return graph, w, grad.numpy() if stored else graph.read(grad)


@pytest.mark.parametrize("stored", [True, False])
def test_a_gradient_of_three_parts(stored):
    torch = pytest.importorskip("torch")
    graph, w, got = tied(stored)
    weight = torch.tensor(w.numpy(), dtype=torch.float64, requires_grad=True)
    x = weight[torch.tensor([3, 3, 0, N - 1])]
    (x @ weight.T @ weight.T).pow(2).sum().backward()
    wanted = weight.grad.numpy()
    np.testing.assert_allclose(got, wanted, atol=1e-5 * np.abs(wanted).max())
    # Nothing of the gradient's size besides itself.
    assert graph.memory_bytes < 4 * N * N * (1 if stored else 3)


def test_gradients_are_added_to_what_is_there():
    w = pg.tensor(np.eye(4, dtype=np.float32), requires_grad=True)
    x = pg.tensor(np.arange(8, dtype=np.float32).reshape(2, 4))
    loss, grad = ops.linear(x, w).sum(), pg.zeros((4, 4))
    graph = pg.Graph([loss], loss=loss, grads={w: grad})
    graph.run()
    once = grad.numpy()
    graph.run()
    np.testing.assert_array_equal(grad.numpy(), 2 * once)
    np.testing.assert_array_equal(once, np.tile(x.numpy().sum(0), (4, 1)))


def test_views_of_a_sum_in_place_show_the_tensor_that_has_the_memory():
    a = pg.tensor(np.ones((2, 6), np.float32), requires_grad=True)
    h = ops.reshape(ops.tanh(a), (4, 3))
    one = ops.mul_mat(h, pg.ones((5, 3))).mean()
    two = ops.sqr(ops.mul_mat(h, pg.ones((5, 3)))).mean()
    loss = one + two
    graph = pg.Graph([loss], loss=loss, grads={a: pg.zeros((2, 6))})
    of = [ptr.view_src for ptr in graph.headers if ptr.view_src != ffi.NULL]
    assert any(ptr.op == lib.GGML_OP_OUT_PROD for ptr in of)
    assert all(ptr.view_src == ffi.NULL for ptr in of)  # Metal's backend asserts it


def overwritten(loss: pg.Tensor, *params: pg.Tensor) -> tuple[pg.Graph, list[np.ndarray]]:
    """Gradients that are written over NaN, in the second of two runs."""
    grads = {p: pg.tensor(np.full(p.shape, np.nan, np.float32)) for p in params}
    graph = pg.Graph([loss], loss=loss, grads=grads, overwrite=True)
    graph.run()
    graph.run()
    return graph, [grad.numpy() for grad in grads.values()]


def added(loss: pg.Tensor, *params: pg.Tensor) -> list[np.ndarray]:
    """The same gradients, added to zeros."""
    grads = {p: pg.zeros(p.shape) for p in params}
    pg.Graph([loss], loss=loss, grads=grads).run()
    return [grad.numpy() for grad in grads.values()]


def parameter(*shape: int) -> pg.Tensor:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return pg.tensor(values.astype(np.float32), requires_grad=True)


LOSSES = {
    "one product": lambda w, b, x: (ops.linear(x, w) ** 2).sum(),
    "two products": lambda w, b, x: (ops.linear(ops.linear(x, w), w) ** 2).sum(),
    "rows and a product": lambda w, b, x: (
        ops.linear(ops.get_rows(w, pg.tensor(np.array([1, 1, 0], np.int32))), w) ** 2
    ).sum(),
    "a sum over rows": lambda w, b, x: ((x + b) ** 2).sum(),
    "a view": lambda w, b, x: (w[1:] * w[:-1]).sum() + b[1:3].sum(),
    "a transposed view": lambda w, b, x: ((x @ w.T) * 2.0 + (x @ w)).sum(),
    "a reshaped one": lambda w, b, x: (w.reshape((2, 8)) ** 2).sum(),
    "subtracted": lambda w, b, x: (x - b).sum() - (b * b).sum(),
    "the parameter itself": lambda w, b, x: w.sum() + (b + w).sum(),
    "the loss's own factor": lambda w, b, x: (w * b).sum() * 2.0,
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_written_over_what_is_there(name):
    """The bits of gradients that are added to zeros; one that the loss does not use is zero."""
    w, b, unused = parameter(4, 4), parameter(4), parameter(3)
    x = pg.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    loss = LOSSES[name](w, b, x)
    _, got = overwritten(loss, w, b, unused)
    for mine, wanted in zip(got, added(loss, w, b, unused), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_writing_takes_no_op_of_its_own():
    w, b = parameter(4, 4), parameter(4)
    loss = ((ops.linear(pg.ones((3, 4)), w) + b) ** 2).sum()
    graph, _ = overwritten(loss, w, b)
    adding = pg.Graph([loss], loss=loss, grads={w: pg.zeros((4, 4)), b: pg.zeros((4,))})
    assert graph.n_nodes == adding.n_nodes - 1  # the bias's sum; the product adds by itself


def test_two_parameters_with_one_gradient():
    w, v, grad = parameter(4, 4), parameter(4, 4), pg.tensor(np.full((4, 4), np.nan, np.float32))
    loss = (w * 3.0).sum() + (v * 2.0).sum()
    graph = pg.Graph([loss], loss=loss, grads={w: grad, v: grad}, overwrite=True)
    for _ in range(2):
        graph.run()
        np.testing.assert_array_equal(grad.numpy(), np.full((4, 4), 5.0, np.float32))


def test_a_gradient_that_an_update_reads_is_not_written_over():
    """Of a + b the gradient is one tensor for both; a's has another product added to it."""
    a, b = parameter(3, 7), parameter(3, 7)
    other = pg.tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8))
    rows = ops.get_rows(a + b, pg.tensor(np.array([1, 2, 0, 1, 0], np.int32)))
    loss = ops.out_prod(a, other).tanh().sum() + rows.tanh().sum()
    wanted = added(loss, a, b)
    made = {a: grad_of(a), b: grad_of(b)}
    hyper = pg.tensor(np.array([1e-2, 0.0], np.float32))
    effects = [ops.opt_step_sgd(p, grad, hyper) for p, grad in made.items()]
    before = [p.numpy() for p in made]
    pg.Graph([loss], loss=loss, grads=made, effects=effects).run()
    for p, was, want in zip(made, before, wanted, strict=True):
        np.testing.assert_allclose((was - p.numpy()) / 1e-2, want, atol=1e-4)


def test_a_device_that_cannot_write_there_adds(monkeypatch):
    """As a GPU that lacks the op in place would have it; the sum is zeroed before each run."""
    w, b = parameter(4, 4), parameter(4)
    loss = ((ops.linear(pg.ones((3, 4)), w) + b) ** 2).sum()
    wanted = added(loss, w, b)
    supports = type(w.device).supports
    monkeypatch.setattr(
        type(w.device),
        "supports",
        lambda self, ptr: supports(self, ptr) and (ptr.op == lib.GGML_OP_ADD or not ptr.view_src),
    )
    _, got = overwritten(loss, w, b)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_is_read_is_not_written_over():
    w, g = parameter(4), pg.tensor([1.0, 2.0, 3.0, 4.0])
    loss, seed = (w * g).sum(), pg.tensor(2.0)
    with pytest.raises(ValueError, match="written over"):
        pg.Graph([loss], loss=loss, grads={w: g}, overwrite=True)
    s = pg.tensor(3.0, requires_grad=True)
    square = s * s
    with pytest.raises(ValueError, match="written over"):
        pg.Graph([square], loss=square, grads={s: seed}, loss_grad=seed, overwrite=True)
    pg.Graph([loss], loss=loss, grads={w: g})
    with pytest.raises(TypeError, match="overwrite"):
        pg.Graph([loss], loss=loss, grads={w: pg.zeros((4,))}, overwrite="no")
