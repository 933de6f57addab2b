# SPDX-License-Identifier: MIT
"""No tensor of no elements, and none beyond arithmetic or memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, ops

# The package's `device` is the function.
device_module = importlib.import_module("pyggml.backend.device")


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 0, 0), (-1,), (2, -2), (2**64, 0)])
@pytest.mark.parametrize("make", [pg.zeros, pg.ones, pg.empty, lambda s: pg.full(s, 1.0)])
def test_no_tensor_of_no_elements(make: Callable[..., Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(pg.ShapeError, match="every extent must be at least 1"):
        make(shape)


@pytest.mark.parametrize("array", [[], [[]], np.zeros((2, 0)), np.zeros((0, 3), np.int32)])
def test_no_tensor_of_an_empty_array(array: Any) -> None:
    with pytest.raises(pg.ShapeError, match="every extent must be at least 1"):
        pg.tensor(array)
    with pytest.raises(pg.ShapeError):
        pg.ones((2,)) + array


def test_no_op_makes_an_empty_tensor() -> None:
    x = pg.ones((3, 4))
    for fn in [
        lambda: x[3:],
        lambda: x[1:1],
        lambda: x.reshape(0, 4),
        lambda: x.reshape(0, -1),
        lambda: ops.repeat(x, (0, 4)),
        lambda: ops.broadcast_to(x, (0, 3, 4)),
        lambda: ops.concat([]),
        lambda: ops.im2col(pg.ones((1, 1, 2, 2)), 3),
        lambda: ops.pool_1d(x, 5),
    ]:
        with pytest.raises(pg.ShapeError):
            fn()


@pytest.mark.parametrize(
    "shape", [(2**48,), (2**24, 2**24), (2**62, 2), (2**64,), (10**30,), (2**31,) * 4]
)
def test_sizes_beyond_arithmetic(shape: tuple[int, ...]) -> None:
    for fn in [
        lambda: pg.zeros(shape),
        lambda: pg.full(shape, 1.0),
        lambda: ops.broadcast_to(pg.ones((1,)), shape),
        lambda: ops.repeat(pg.ones((1,)), shape),
        lambda: pg.ones((1,)).reshape(shape),
    ]:
        with pytest.raises(pg.ShapeError):
            fn()


def test_sizes_beyond_memory() -> None:
    vast = (2**20, 2**20)  # 4 TiB
    column = pg.ones((2**20, 1))
    for fn in [
        lambda: pg.zeros(vast),
        lambda: pg.full(vast, 1.0),
        lambda: pg.ones(vast),
        lambda: pg.zeros_group([(vast, "f32"), (vast, "f16")]),
        lambda: ops.broadcast_to(column, vast).numpy(),
        lambda: (column @ column.T).sum().item(),
        lambda: ops.diag(pg.ones((2**20,))).numpy(),
        lambda: ops.conv_2d(pg.ones((1, 1, 3, 3)), pg.ones((1, 1, 1, 1)), 1, 2**20).numpy(),
    ]:
        with pytest.raises(pg.BackendError, match=r"(allocate|more than is free)"):
            fn()
    with pytest.raises(pg.ShapeError):
        ops.pad(pg.ones((2,)), [(0, 2**31)])
    with pytest.raises(pg.ShapeError):
        ops.pad(pg.ones((2,)), [(0, 2**62)])


def test_a_size_over_two_billion_elements_is_recorded_without_memory() -> None:
    big = ops.broadcast_to(pg.ones((2**16, 1)), (2**16, 2**16))
    assert big.numel() == 2**32
    assert big[2**15, 5:9].shape == (4,)
    assert big.sum(0).shape == (2**16,)


def test_what_is_not_free_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "available_bytes", lambda: 2**28)
    column = pg.ones((2**14, 1))
    with pytest.raises(pg.BackendError, match="activations"):
        ops.broadcast_to(column, (2**14, 2**14)).sum().item()
    with pytest.raises(pg.BackendError, match="cannot allocate"):
        pg.zeros((2**14, 2**14))
    with pytest.raises(pg.BackendError, match="more than is free"):
        pg.full((2**14, 2**14), 1.0)
    for make in (
        lambda: pg.arange(2**28), lambda: pg.arange(0.0, 1e300, 1e-300),
        lambda: pg.linspace(0, 1, 2**31), lambda: pg.eye(2**15), lambda: pg.rand(2**15, 2**14),
        lambda: pg.randn(2**15, 2**14), lambda: pg.randint(0, 9, (2**15, 2**14)),
        lambda: nn.functional.adaptive_avg_pool2d(pg.ones((1, 1, 64, 64)), 2**20),
    ):  # fmt: skip
        with pytest.raises(pg.OutOfMemoryError, match="more than is free"):
            make()
    with pytest.raises(ValueError, match="pad"):
        nn.functional.pad(column, (2**40, 0), mode="replicate")
    assert column.sum().item() == 2**14
