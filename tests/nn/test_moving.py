# SPDX-License-Identifier: MIT
"""Modules that move: what was made before refuses or is made anew, and nothing reads old numbers.

The CPU may be the only device here: `_move` gives a tensor other memory as another device would.
Between two devices models move in tests/emulation.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.errors import BackendError, GradientError
from pyggml.graph import Graph
from pyggml.models import GPT2, GPT2Config
from pyggml.train import TrainStep

CPU = pg.device("cpu")
SIZES = GPT2Config(vocab_size=17, context=8, n_embd=8, n_layer=1, n_head=2)


def move(module: nn.Module) -> None:
    for each in module.parameters():
        each._move(CPU)


def test_where_it_is_nothing_moves():
    layer = nn.Linear(2, 3)
    node = layer.weight.node
    assert layer.to("cpu") is layer
    assert layer.weight.node is node
    assert layer.weight.to("cpu") is layer.weight
    assert layer.weight.move_("cpu") is layer.weight


@pytest.mark.parametrize("act", [lambda m: m.to("cuda:9"), lambda m: m.weight.to("cuda:9")])
def test_a_device_that_is_not_there(act):
    with pytest.raises(BackendError, match="no 'cuda:9' here; there are auto, cpu"):
        act(nn.Linear(2, 3))


def test_only_stored_tensors_move():
    with pytest.raises(ValueError, match="recorded op"):
        (pg.ones((2,)) + 1.0).move_("cpu")


def test_state_comes_along():
    model = GPT2(SIZES)
    model.transformer.wpe.weight.requires_grad = False
    seen = []
    model.transformer.wte.weight.register_hook(seen.append)
    before, size = model.state_dict(), model.num_parameters()
    ids = np.arange(8, dtype=np.int32)[None]
    model.loss(pg.tensor(ids), pg.tensor(ids)).backward()
    grad = model.transformer.wte.weight.grad.numpy()
    move(model)
    assert model.num_parameters() == size
    assert not model.transformer.wpe.weight.requires_grad
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(model.transformer.wte.weight.grad.numpy(), grad)
    seen.clear()
    model.loss(pg.tensor(ids), pg.tensor(ids)).backward()
    assert len(seen) == 1
    # Gradients add up in the memory that moved, of the head and the embedding as one.
    np.testing.assert_allclose(model.transformer.wte.weight.grad.numpy(), 2 * grad, rtol=1e-5)


def test_graphs_and_optimizers_refuse():
    layer = nn.Linear(2, 1)
    graph = Graph([layer(pg.ones((1, 2)))])
    step = TrainStep(layer, optim.SGD(layer.parameters(), lr=0.1), loss=_squares)
    batch = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    step([batch])
    move(layer)
    with pytest.raises(BackendError, match="another device since it was made"):
        graph.run()
    with pytest.raises(GradientError, match=r"model.to\(\)"):
        step([batch])
    step = TrainStep(layer, optim.SGD(layer.parameters(), lr=0.1), loss=_squares)
    before = layer.weight.numpy()
    step([batch])
    assert not np.array_equal(layer.weight.numpy(), before)


def _squares(model: nn.Module, x: pg.Tensor, y: pg.Tensor) -> pg.Tensor:
    return pg.ops.sqr(model(x) - y).sum()


def test_compiled_functions_are_recorded_anew():
    w = nn.Parameter([2.0])
    double = pg.compile(lambda x: x * w)
    slope = pg.value_and_grad(lambda x: (x * w).sum())
    assert double([3.0]).tolist() == [6.0]
    assert slope([3.0])[1].tolist() == [2.0]
    w._move(CPU)
    w.copy_([5.0])
    assert double([3.0]).tolist() == [15.0]
    assert slope([3.0])[1].tolist() == [5.0]
