# SPDX-License-Identifier: MIT
"""`x += y` and its like change a stored tensor, and make a new one of a result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import GradientError, ShapeError

OPS = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow]


@pytest.mark.parametrize("op", OPS)
def test_a_stored_tensor_is_changed_for_all_who_hold_it(op: Callable[[Any, Any], Any]) -> None:
    array = np.array([1.0, 2.0, 3.0], np.float32)
    x = y = pg.tensor(array)
    doubled = x * 2  # has the numbers of now
    y = op(y, 2.0)
    assert y is x
    np.testing.assert_array_equal(x.numpy(), op(array.copy(), np.float32(2)))
    np.testing.assert_array_equal(doubled.numpy(), array * 2)


@pytest.mark.parametrize("op", OPS)
def test_a_result_is_not_changed(op: Callable[[Any, Any], Any]) -> None:
    x = pg.tensor([1.0, 2.0]) * 1.0
    y = op(x, 3.0)
    assert y is not x
    assert x.tolist() == [1.0, 2.0]


def test_gradient_descent_by_hand() -> None:
    pg.seed(0)
    model = nn.Linear(4, 1)
    x = pg.tensor(np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    losses = []
    for _ in range(20):
        loss = ((model(x) - 1.0) ** 2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p -= 0.1 * p.grad  # noqa: PLW2901 - in place
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert all(p.requires_grad and p.is_stored for p in model.parameters())


def test_a_parameter_is_changed_by_numbers_alone() -> None:
    w = nn.Parameter([1.0, 2.0])
    with pytest.raises(GradientError, match=r"use other\.detach\(\)"):
        w += w * 2.0
    with pytest.raises(ShapeError, match=r"must be \(2,\)"):
        w += pg.ones(3, 2)
    assert w.tolist() == [1.0, 2.0]


def test_a_sum_of_losses_keeps_its_gradient() -> None:
    w = nn.Parameter([3.0])
    total = pg.zeros(())
    for factor in (1.0, 2.0):
        total += (w * factor).sum()
    total.backward()
    assert w.grad.tolist() == [3.0]


def test_a_recorded_function_makes_new_tensors() -> None:
    count = pg.zeros(2)

    def fn(x: pg.Tensor) -> pg.Tensor:
        y = count
        y += x
        return y

    compiled = pg.compile(fn)
    for _ in range(2):
        assert compiled(np.ones(2, np.float32)).tolist() == [1.0, 1.0]
    assert count.tolist() == [0.0, 0.0]
