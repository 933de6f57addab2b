# SPDX-License-Identifier: MIT
"""What a recorded function does anew: modes of modules, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import RecordingError
from pyggml.optim import SGD
from pyggml.train import TrainStep


def dropped(y: pg.Tensor) -> bool:
    return bool((y.numpy() == 0).any())


@pytest.mark.parametrize("first", [True, False])
def test_a_compiled_module_follows_train_and_eval(first: bool) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5))
    compiled = pg.compile(model)
    x = pg.ones((4, 32))
    for training in (first, not first, first):
        model.train(training)
        assert dropped(compiled(x)) == training
        assert dropped(compiled(x)) == training
    assert len(compiled._plans) == 2


def test_a_module_that_a_function_reads_is_followed() -> None:
    dropout = nn.Dropout(0.5)
    both = pg.value_and_grad(lambda x: dropout(x).sum())
    x = pg.ones((64,))
    assert (both(x)[1].numpy() == 0).any()
    dropout.eval()
    np.testing.assert_array_equal(both(x)[1].numpy(), 1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: pg.randn(4, 8),
        lambda: pg.rand(4, 8),
        lambda: pg.randint(0, 99, (4, 8)).astype("f32"),
        lambda: pg.randperm(32).reshape(4, 8).astype("f32"),
    ],
    ids=["randn", "rand", "randint", "randperm"],
)
def test_random_numbers_are_drawn_at_each_run(draw: Callable[[], pg.Tensor]) -> None:
    pg.seed(7)
    wanted = [draw().numpy() for _ in range(3)]
    noisy = pg.compile(lambda x: x + draw())
    pg.seed(7)
    for want in wanted:
        np.testing.assert_array_equal(noisy(np.zeros((4, 8), np.float32)).numpy(), want)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + pg.randn(4, 8),
        lambda x: nn.functional.dropout(x + 1.0, 0.5),
        lambda x: nn.functional.dropout(x + pg.randn(4, 8), 0.5),
    ],
    ids=["randn", "dropout", "both"],
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_seed_restarts_the_numbers_of_a_recorded_function(draw: Any, before: int) -> None:
    noisy = pg.compile(draw)
    for _ in range(before):
        noisy(np.zeros((2, 4, 8), np.float32))
    x = np.zeros((4, 8), np.float32)
    found = []
    for _ in range(3):
        pg.seed(3)
        found.append([noisy(x).numpy() for _ in range(3)])
    np.testing.assert_array_equal(found[1], found[2])
    if not before:
        np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0][0], found[0][1])


def test_a_seed_restarts_randn_as_it_does_elsewhere() -> None:
    noisy = pg.compile(lambda x: x + pg.randn(4, 8))
    for _ in range(2):
        pg.seed(3)
        found = [noisy(np.zeros((4, 8), np.float32)).numpy() for _ in range(2)]
    pg.seed(3)
    np.testing.assert_array_equal(found, [pg.randn(4, 8).numpy() for _ in range(2)])


def test_random_numbers_are_not_read_while_they_are_to_come() -> None:
    with pytest.raises(RecordingError, match="must not read"):
        pg.compile(lambda x: x * pg.rand(2).numpy())(np.ones(2, np.float32))


class Noisy(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter(np.ones(8, np.float32))

    def loss(self, x: pg.Tensor, y: pg.Tensor) -> pg.Tensor:
        return ((self.weight * pg.randn(4, 8) + x - y) ** 2).mean()


def test_a_training_step_draws_as_a_loop_of_ones_own() -> None:
    x, y = np.zeros((4, 8), np.float32), np.ones((4, 8), np.float32)
    found = []
    for traced in (True, False):
        model = Noisy()
        optimizer = SGD(model, lr=0.1)
        step = TrainStep(model, optimizer)
        pg.seed(5)
        for _ in range(4):
            if traced:
                step([(x, y)])
            else:
                model.loss(pg.tensor(x), pg.tensor(y)).backward()
                optimizer.step()
                optimizer.zero_grad()
        found.append(model.weight.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_a_compiled_module_has_what_the_module_has() -> None:
    model = nn.Linear(3, 2)
    compiled: Any = pg.compile(model)
    assert list(compiled.state_dict()) == ["weight", "bias"]
    compiled.eval()
    assert not model.training
    assert SGD(compiled, lr=0.1).names == ["weight", "bias"]
    with pytest.raises(AttributeError, match="wieght"):
        compiled.wieght  # noqa: B018
