# SPDX-License-Identifier: MIT
"""Gradients that are added to others take no memory of their own."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
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
