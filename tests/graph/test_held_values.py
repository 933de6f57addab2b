# SPDX-License-Identifier: MIT
"""What the program holds of a forward has the numbers that `backward()` computed."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import ShapeError
from pyggml.graph.graph import Graph
from pyggml.nn import functional as F
from pyggml.optim import SGD

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = np.arange(8) % 3


class Two(nn.Module):
    def __init__(self):
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        self.hidden = self.first(x)
        return self.second(self.hidden.relu())


def make():
    pg.seed(0)
    model = Two()
    return model, SGD(model, lr=0.5)


def test_numbers_are_those_of_before_the_step_at_every_step():
    model, optimizer = make()
    for _ in range(5):  # kept from the third on
        before = model(pg.tensor(X)).numpy()
        logits = model(pg.tensor(X))
        turned, flat, top = logits.T, logits.reshape(24), logits.argmax(1)
        loss = F.cross_entropy(logits, pg.tensor(Y))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        np.testing.assert_allclose(top.numpy(), before.argmax(1))
        np.testing.assert_array_equal(logits.numpy(), before)
        np.testing.assert_array_equal(turned.numpy(), before.T)
        np.testing.assert_array_equal(flat.numpy(), before.reshape(24))
        correct = (logits.argmax(1) == pg.tensor(Y)).mean().item()
        assert correct == (before.argmax(1) == Y).mean()
        np.testing.assert_array_equal(logits.detach().numpy(), before)
        hidden = model.hidden.numpy()
        assert not np.array_equal(model(pg.tensor(X)).numpy(), before)
        assert not np.array_equal(model.hidden.numpy(), hidden)


def test_numbers_that_are_held_outlive_the_next_step():
    model, optimizer = make()
    logits, want = [], []
    for i in range(6):
        x = pg.tensor(X + i)
        want.append(model(x).numpy())
        logits.append(model(x))
        F.cross_entropy(logits[-1], pg.tensor(Y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    for got, expected in zip(logits, want, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)


def test_only_what_is_held_is_copied(monkeypatch):
    copied = []
    fetch = Graph.fetch
    monkeypatch.setattr(Graph, "fetch", lambda *args: copied.append(1) or fetch(*args))
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    optimizer = SGD(model, lr=0.5)
    losses = []
    for i in range(6):
        logits = model(pg.tensor(X))
        losses.append(F.cross_entropy(logits, pg.tensor(Y)))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
        if i == 1:  # from here on the graph is kept
            copied.clear()
    assert not copied
    logits.numpy()
    assert not copied  # read where it is
    model(pg.tensor(X))
    F.cross_entropy(model(pg.tensor(X)), pg.tensor(Y)).backward()
    assert len(copied) == 1  # before its memory is used again


def test_a_hidden_state_goes_on_after_the_step_as_in_pytorch():
    torch = pytest.importorskip("torch")
    pg.seed(0)
    cell = nn.Linear(6, 4)
    twin = torch.nn.Linear(6, 4)
    twin.load_state_dict({k: torch.tensor(v) for k, v in cell.state_dict().items()})
    own, other = SGD(cell, lr=0.3), torch.optim.SGD(twin.parameters(), lr=0.3)
    rng = np.random.default_rng(1)
    h, g = pg.zeros((3, 4)), torch.zeros(3, 4)
    for _ in range(6):
        x = rng.standard_normal((3, 2)).astype(np.float32)
        h = pg.cat([h, pg.tensor(x)], 1)
        h = cell(h).tanh()
        loss = (h * h).mean() + h.sum() * 0.1
        loss.backward()
        own.step()
        own.zero_grad()
        h = h.detach()
        g = torch.tanh(twin(torch.cat([g, torch.tensor(x)], 1)))
        want = (g * g).mean() + g.sum() * 0.1
        want.backward()
        other.step()
        other.zero_grad()
        g = g.detach()
        assert loss.item() == pytest.approx(want.item(), abs=1e-6)
    np.testing.assert_allclose(h.numpy(), g.numpy(), atol=1e-6)


def read_nothing(logits, loss):
    pass


def read_loss(logits, loss):
    loss.item()


def show_loss(logits, loss):
    repr(loss)


def read_logits(logits, loss):
    logits.numpy()


def count(logits, loss):
    (logits.argmax(1) == pg.tensor(Y)).mean().item()


@pytest.mark.parametrize("before", [read_nothing, read_loss, show_loss, read_logits, count])
@pytest.mark.parametrize("after", [read_nothing, read_loss, read_logits, count])
def test_running_statistics_move_once_a_step(before, after):
    def train(before, after):
        pg.seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        optimizer = SGD(model, lr=0.1)
        for i in range(4):
            logits = model(pg.tensor(X + i))
            loss = F.cross_entropy(logits, pg.tensor(Y))
            before(logits, loss)
            loss.backward()
            after(logits, loss)
            optimizer.step()
            optimizer.zero_grad()
            after(logits, loss)
        return model.state_dict()

    want, got = train(read_nothing, read_nothing), train(before, after)
    assert want.keys() == got.keys()
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("first", [0, 1])
def test_a_tensor_and_another_shape_of_it_are_both_known(first):
    model, optimizer = make()
    logits = model(pg.tensor(X))
    flat = logits.reshape(24)
    want = model(pg.tensor(X)).numpy()
    (F.cross_entropy(logits, pg.tensor(Y)) + (flat * flat).mean()).backward()
    optimizer.step()
    parts = (flat.trunc().mean(), (logits.trunc() @ pg.ones((3, 2))).mean())
    total = parts[first] + 3.0 * parts[1 - first]
    weights = (1.0, 3.0) if first == 0 else (3.0, 1.0)
    cut = np.trunc(want)
    expected = weights[0] * cut.mean() + weights[1] * cut.sum(1).mean()
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_a_graph_reads_what_is_known():
    w = pg.tensor([1.0, 2.0])
    inner = w * 2.0
    outer = inner.reshape(2, 1) + 1.0
    graph = Graph([outer], known={inner: pg.tensor([10.0, 20.0])})
    graph.run()
    assert graph.read(outer).tolist() == [[11.0], [21.0]]
    assert graph.n_nodes < Graph([outer]).n_nodes
    flat = inner.reshape(2, 1)
    known = {inner: pg.tensor([1.0, 2.0]), flat: pg.tensor([[1.0], [2.0]])}
    for given in (known, dict(reversed(known.items()))):
        total = inner.trunc().sum() + (flat.exp() @ pg.ones((1, 2))).sum() / 2
        graph = Graph([total], known=given)
        graph.run()
        assert graph.read(total) == pytest.approx(3 + np.exp(1) + np.exp(2), rel=1e-6)
    with pytest.raises(ShapeError, match=r"known must be stored.*\(2,\) and f32"):
        Graph([outer], known={inner: pg.ones(3)})
    with pytest.raises(TypeError, match="each of known"):
        Graph([outer], known={inner: 3})
    with pytest.raises(TypeError, match="known must be a dict"):
        Graph([outer], known=[inner])
