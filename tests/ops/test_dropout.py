# SPDX-License-Identifier: MIT
"""Dropout: masks that a seed decides, new ones at each run, none when evaluating."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pyggml as pg
from pyggml import DTypeError, ShapeError, nn, ops
from pyggml.optim import SGD
from pyggml.train.step import TrainStep


def test_the_share_that_is_dropped() -> None:
    y = ops.dropout(pg.ones((100_000,)), 0.3, 7).numpy()
    assert np.mean(y == 0) == pytest.approx(0.3, abs=0.01)
    np.testing.assert_allclose(y[y != 0], 1 / 0.7, rtol=1e-6)


def test_seed_and_index_decide() -> None:
    x = pg.ones((1000,))
    first = ops.dropout(x, 0.5, 1).numpy()
    np.testing.assert_array_equal(ops.dropout(x, 0.5, 1).numpy(), first)
    for other in (
        ops.dropout(x, 0.5, 2),
        ops.dropout(x, 0.5, 1, 1),
        ops.dropout(x, 0.5, 2**32 + 1),
    ):
        assert np.mean(other.numpy() != first) > 0.4


def test_what_is_dropped_may_be_infinite() -> None:
    x = pg.tensor([np.inf] * 64)
    assert set(ops.dropout(x, 0.5, 1).tolist()) == {0.0, np.inf}


def test_forward_and_backward_of_a_recorded_tensor_have_one_mask() -> None:
    x = pg.tensor(np.ones(1000), requires_grad=True)
    y = ops.dropout(x, 0.5)
    seen = y.numpy()
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), seen)


def test_the_seed_of_the_package_decides_what_has_none() -> None:
    def draw() -> list[float]:
        pg.seed(5)
        return ops.dropout(pg.ones((64,)), 0.5).tolist()

    assert draw() == draw()


def test_a_compiled_function_has_a_new_mask_at_each_call() -> None:
    recorded = []

    def fn(x: pg.Tensor) -> pg.Tensor:
        recorded.append(1)
        return ops.dropout(x, 0.5) * ops.dropout(x, 0.5)

    def calls() -> list[np.ndarray]:
        pg.seed(3)
        compiled = pg.compile(fn)
        return [compiled(np.ones(1000)).numpy() for _ in range(3)]

    first, again = calls(), calls()
    assert len(recorded) == 2
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.mean(a != 0) == pytest.approx(0.25, abs=0.06)  # two masks, not one twice
    assert np.mean(first[0] != first[1]) > 0.2
    assert np.mean(first[1] != first[2]) > 0.2


def test_value_and_grad_has_a_new_mask_at_each_call() -> None:
    fn = pg.value_and_grad(lambda x: ops.dropout(x, 0.5).sum())
    grads = [fn(np.ones(1000))[1].numpy() for _ in range(2)]
    assert np.mean(grads[0] != grads[1]) > 0.4


def test_the_module_drops_while_training_only() -> None:
    layer = nn.Dropout(0.5)
    x = pg.ones((1000,))
    assert np.mean(layer(x).numpy() == 0) == pytest.approx(0.5, abs=0.06)
    layer.eval()
    assert layer(x) is x
    assert nn.Dropout(0.0)(x) is x
    with pytest.raises(ValueError, match="Dropout: p must be"):
        nn.Dropout(1.0)


class Model(nn.Module):
    def __init__(self) -> None:
        self.table = nn.Embedding(5, 64)
        self.drop = nn.Dropout(0.5)

    def loss(self, ids: pg.Tensor, targets: pg.Tensor) -> pg.Tensor:
        return nn.functional.linear(self.drop(self.table(ids)), self.table.weight).sum()


def test_a_training_step_resumes_with_the_masks_it_would_have_had() -> None:
    batch = (np.array([[1, 2, 3]], np.int32), np.array([[2, 3, 4]], np.int32))
    model = Model()
    state = model.state_dict()

    def losses(start: int, count: int) -> list[float]:
        model.load_state_dict(state)
        step = TrainStep(model, SGD(model.parameters(), lr=0.0), seed=4)
        step.runs = start
        return [step([batch, batch]).loss for _ in range(count)]

    whole = losses(0, 4)
    assert len(set(whole)) == 4
    assert losses(4, 2) == whole[2:]
    step = TrainStep(model, SGD(model.parameters(), lr=0.0))
    assert step.loss_sum(batch) == step.loss_sum(batch)
    assert model.training


def test_checks() -> None:
    x = pg.ones((4,))
    for p in (1.0, -0.1, np.nan, 1 - 1e-9):
        with pytest.raises(ValueError, match="dropout: p must be from 0 to below 1"):
            ops.dropout(x, p, 1)
    with pytest.raises(ValueError, match="seed must be from 0"):
        ops.dropout(x, 0.5, -1)
    with pytest.raises(TypeError, match="seed must be a whole number"):
        ops.dropout(x, 0.5, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="seed, if a tensor, must be stored"):
        ops.dropout(x, 0.5, pg.tensor([1, 2, 3]))
    with pytest.raises(DTypeError, match="seed must be i32"):
        ops.dropout(x, 0.5, pg.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="index"):
        ops.dropout(x, 0.5, 1, 2**31)
    with pytest.raises(ValueError, match="DropoutStream: seed"):
        pg.DropoutStream(-1)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("first", [0, 3])
def test_each_offset_of_a_stream_has_a_mask_of_its_own(seed, first):
    stream = pg.DropoutStream(seed)
    stream.seek(first)
    with stream:
        y = ops.dropout(pg.ones(64), 0.5)
    graph, found = pg.Graph([y]), {}
    offsets = [first, first + 1, first + 2, 0]
    for offset in [*offsets, *offsets]:
        if found:
            stream.seek(offset)
        graph.run()
        mask = graph.fetch(y).numpy().tobytes()
        assert found.setdefault(offset, mask) == mask
    assert len({*found.values()}) == len({*offsets})


def test_a_copy_of_a_stream_draws_anew_after_a_seed_as_well():
    stream = pg.DropoutStream()
    with stream:
        ops.dropout(pg.ones(64), 0.5)
    copied, found = copy.deepcopy(stream), []
    for each in (stream, copied):
        pg.seed(5)
        each.seek(1)
        with each:
            found.append(ops.dropout(pg.ones(64), 0.5).tolist())
    assert found[0] == found[1]
