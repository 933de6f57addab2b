# SPDX-License-Identifier: MIT
"""What is assigned to a buffer or a parameter stays in the model, or is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.optim import SGD
from pyggml.train import TrainStep


class Running(nn.Module):
    """A running mean of the inputs, as a PyTorch user writes it."""

    def __init__(self) -> None:
        self.inner = nn.Linear(2, 2)
        self.register_buffer("mean", pg.zeros(1))

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return self.inner(x - self.mean)


class Attached(Running):
    """The same for graphs that run many times, as the error says."""

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        y = self.inner(x - self.mean)
        value = 0.9 * self.mean + 0.1 * x.mean()
        return pg.graph.attach_update(y, pg.ops.cpy(value, self.mean))


def batches() -> list[np.ndarray]:
    return list(np.random.default_rng(0).normal(2.0, 1.0, (4, 3, 2)).astype(np.float32))


def wanted(number: int = 4) -> float:
    mean = np.float32(0)
    for x in batches()[:number]:
        mean = np.float32(0.9) * mean + np.float32(0.1) * x.mean()
    return float(mean)


def test_a_buffer_that_forward_assigns_stays_in_the_model(tmp_path: Path) -> None:
    model = Running()
    optimizer = SGD(model, lr=0.1)
    for x in batches():
        optimizer.zero_grad()
        model(pg.tensor(x)).square().mean().backward()
        optimizer.step()
    assert model.mean.is_stored
    assert not model.mean.requires_grad
    assert [name for name, _ in model.named_buffers()] == ["mean"]
    np.testing.assert_allclose(model.state_dict()["mean"], [wanted()], rtol=1e-6)
    assert [name for name, _ in copy.deepcopy(model).named_buffers()] == ["mean"]
    again = Running()
    again.load_state_dict(model.state_dict())
    assert again.mean.tolist() == model.mean.tolist()
    with pytest.raises(KeyError, match="mean"):
        again.load_state_dict({k: v for k, v in model.state_dict().items() if k != "mean"})


def test_a_buffer_is_detached_and_may_be_none() -> None:
    model = Running()
    model.mean = model.inner.weight.sum() * 1.0
    assert model.mean.is_stored
    assert not model.mean.requires_grad
    model.mean = None
    assert list(model.named_buffers()) == []
    model.mean = pg.ones(2) * 2.0  # the name was kept
    assert model.state_dict()["mean"].tolist() == [2.0, 2.0]
    model.register_buffer("later", None)
    model.later = pg.ones(2) + 1.0
    assert "later" in model.state_dict()
    del model.mean
    model.mean = [1, 2]  # an attribute like others
    assert "mean" not in model.state_dict()
    model.later = nn.Parameter(np.ones(3))
    assert "later" in dict(model.named_parameters())
    assert "later" not in dict(model.named_buffers())


def test_a_buffer_that_is_not_saved_stays_so() -> None:
    model = Running()
    model.register_buffer("passing", pg.zeros(1), persistent=False)
    model.passing = model.passing + 1.0
    assert "passing" in dict(model.named_buffers())
    assert "passing" not in model.state_dict()


@pytest.mark.parametrize("value", [np.ones(1), 1.0, [1.0], nn.Linear(1, 1)])
def test_another_kind_is_no_buffer(value: object) -> None:
    model = Running()
    with pytest.raises(TypeError, match=r"mean is a buffer.*copy_"):
        model.mean = value
    norm = nn.BatchNorm1d(3)
    with pytest.raises(TypeError, match=r"running_mean is a buffer.*copy_"):
        norm.running_mean = value
    assert "mean" in model.state_dict()
    assert list(norm.state_dict())[2:] == ["running_mean", "running_var", "num_batches_tracked"]


def test_a_parameter_is_not_replaced_by_what_is_recorded() -> None:
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy()
    for value in (layer.weight * 0.5, before * 0.5, 0.5):
        with pytest.raises(TypeError, match=r"weight is a parameter.*weight\.copy_"):
            layer.weight = value
    layer.weight.copy_(layer.weight * 0.5)
    np.testing.assert_array_equal(layer.state_dict()["weight"], before * 0.5)
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]
    layer.weight = nn.Parameter(before)
    assert list(dict(layer.named_parameters())) == ["weight"]


def loss(model: nn.Module, x: pg.Tensor, y: pg.Tensor) -> pg.Tensor:
    return (model(x) - y).square().mean()


def test_a_traced_step_says_how_to_write_a_buffer() -> None:
    x, model = batches()[0], Running()
    step = TrainStep(model, SGD(model, lr=0.1), loss=loss)
    with pytest.raises(pg.RecordingError, match=r"buffer mean.*attach_update"):
        step([(x, x)])
    with pytest.raises(pg.RecordingError, match=r"buffer mean.*attach_update"):
        pg.compile(model)(pg.tensor(x))
    assert model.state_dict()["mean"].tolist() == [0.0]


def test_the_way_that_the_error_names_works_in_a_traced_step() -> None:
    model = Attached()
    step = TrainStep(model, SGD(model, lr=0.1), loss=loss)
    for x in batches():
        step([(x, x)])
    np.testing.assert_allclose(model.state_dict()["mean"], [wanted()], rtol=1e-6)
    model = Attached()
    run = pg.compile(model)
    for x in batches():
        run(pg.tensor(x)).numpy()
    np.testing.assert_allclose(model.state_dict()["mean"], [wanted()], rtol=1e-6)
