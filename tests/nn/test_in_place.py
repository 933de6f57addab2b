# SPDX-License-Identifier: MIT
"""Initialisers that overwrite a tensor draw from PyTorch's distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.nn import init

# A call, and the standard deviation that PyTorch's documentation gives for a (64, 32, 3, 3) weight.
FANS = 32 * 9, 64 * 9
DRAWN = [
    ("normal_", {"mean": 1.0, "std": 0.5}, 1.0, 0.5),
    ("uniform_", {"a": -1.0, "b": 3.0}, 1.0, 4 / 12**0.5),
    ("trunc_normal_", {"std": 0.1, "a": -9.0, "b": 9.0}, 0.0, 0.1),
    ("xavier_uniform_", {"gain": 2.0}, 0.0, 2 * (2 / sum(FANS)) ** 0.5),
    ("xavier_normal_", {}, 0.0, (2 / sum(FANS)) ** 0.5),
    ("kaiming_uniform_", {"nonlinearity": "relu"}, 0.0, (2 / FANS[0]) ** 0.5),
    ("kaiming_uniform_", {"a": 5**0.5}, 0.0, (1 / 3 / FANS[0]) ** 0.5),
    ("kaiming_normal_", {"mode": "fan_out"}, 0.0, (2 / FANS[1]) ** 0.5),
    ("constant_", {"val": 3.0}, 3.0, 0.0),
    ("ones_", {}, 1.0, 0.0),
    ("zeros_", {}, 0.0, 0.0),
]


@pytest.mark.parametrize(("name", "options", "mean", "std"), DRAWN)
def test_mean_and_deviation(name: str, options: dict[str, Any], mean: float, std: float) -> None:
    pg.seed(0)
    weight = pg.empty(64, 32, 3, 3, requires_grad=True)
    assert getattr(init, name)(weight, **options) is weight
    numbers = weight.numpy()
    assert weight.requires_grad
    assert abs(numbers.mean() - mean) < 0.02 * max(std, 1e-6)
    assert abs(numbers.std() - std) <= 0.02 * std
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn.init, name)(torch.empty(64, 32, 3, 3), **options).numpy()
    assert abs(theirs.std() - std) <= 0.02 * std
    if "uniform" in name:
        np.testing.assert_allclose(abs(numbers).max(), abs(theirs).max(), rtol=1e-3)


def test_truncated_numbers_stay_inside() -> None:
    numbers = init.trunc_normal_(pg.empty(1000), 0.0, 1.0, -0.5, 0.25).numpy()
    assert -0.5 <= numbers.min() < -0.4
    assert 0.2 < numbers.max() <= 0.25
    with pytest.raises(ValueError, match=r"trunc_normal_: .*near the mean"):
        init.trunc_normal_(pg.empty(3), 9.0, 0.1, -1.0, 1.0)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3, 3)])
def test_rows_or_columns_are_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = init.orthogonal_(pg.empty(shape), gain=2.0).numpy().reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(min(matrix.shape)), atol=1e-5)


@pytest.mark.parametrize(
    "name", ["linear", "conv1d", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]
)
def test_gains_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    if name == "leaky_relu":
        want = torch.nn.init.calculate_gain(name, 0.3)
        assert init.calculate_gain(name, 0.3) == pytest.approx(want)


def test_what_cannot_be_drawn_is_named() -> None:
    with pytest.raises(pg.ShapeError, match=r"xavier_uniform_: tensor must be a weight"):
        init.xavier_uniform_(pg.empty(3))
    with pytest.raises(TypeError, match=r"^normal_: tensor must be a Tensor"):
        init.normal_(np.ones(3))
    np.testing.assert_array_equal(init.eye_(pg.empty(2, 3)).numpy(), np.eye(2, 3))
