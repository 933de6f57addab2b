# SPDX-License-Identifier: MIT
"""Arithmetic of i32 tensors: stored ones by NumPy, recorded ones by a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops

A, B = np.array([[7, -7, 3], [0, 2**30, -5]]), np.array([2, -3, 5])
OPS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]


@pytest.mark.parametrize("op", OPS)
def test_stored_numbers_are_exact(op: Callable[..., Any]) -> None:
    a, b = A if op is not operator.mul else A % 1000, B
    x, y = pg.tensor(a), pg.tensor(b)
    for got, want in ((op(x, y), op(a, b)), (op(x, 3), op(a, 3)), (op(11, y), op(11, b)),
                      (op(x, b), op(a, b)), (op(y, np.int64(4)), op(b, 4))):  # fmt: skip
        assert got.dtype.name == "i32"
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("op", OPS)
def test_recorded_numbers_are_those_of_numpy(op: Callable[..., Any]) -> None:
    scores = np.random.default_rng(1).normal(size=(4, 50, 9)).astype(np.float32)
    best, want = pg.tensor(scores).argmax(-1), scores.argmax(-1)
    shift = np.random.default_rng(2).integers(1, 2000, 50)
    for value, same in ((3, 3), (pg.tensor(shift), shift), (pg.tensor(-shift), -shift)):
        got = op(best, value)
        assert not got.is_stored
        np.testing.assert_array_equal(got.numpy(), op(want, same))
    np.testing.assert_array_equal(op(9, best + 1).numpy(), op(9, want + 1))


def test_quotients_of_all_small_numbers() -> None:
    a, b = np.arange(-300, 300)[:, None], np.array([*range(-40, 0), *range(1, 40)])
    halves = pg.compile(lambda x, y: (x // y, x % y))
    found, rest = halves(pg.tensor(a), pg.tensor(b))
    np.testing.assert_array_equal(found.numpy(), a // b)
    np.testing.assert_array_equal(rest.numpy(), a % b)
    large = 2**24 - 1
    quotient, left = halves(pg.tensor([large, large, -large]), pg.tensor([large, large - 1, 3]))
    assert (quotient.tolist(), left.tolist()) == ([1, 1, -large // 3], [0, 1, 0])


def test_decimal_numbers_make_it_f32() -> None:
    x = pg.tensor([1, 2, 4])
    for got in (x * 0.5, x / 2, x / pg.tensor([2, 2, 2]), x * pg.tensor([0.5, 0.5, 0.5])):
        assert got.dtype.name == "f32"
        assert got.tolist() == [0.5, 1.0, 2.0]
    half = pg.tensor(np.float16([0.5, 0.5, 0.5]))
    assert (x * half).dtype.name == "f16"
    assert (-x).tolist() == [-1, -2, -4]


def test_rows_of_a_sum_of_numbers() -> None:
    table = pg.tensor(np.arange(12.0, dtype=np.float32).reshape(6, 2))
    best = pg.tensor([[0.1, 0.9], [0.8, 0.2]]).argmax(-1)
    for _ in range(2):
        assert ops.get_rows(table, best * 3 + 2).tolist() == [[10.0, 11.0], [4.0, 5.0]]
        with pytest.raises(pg.ShapeError, match="get_rows"):
            ops.get_rows(table, best * 5 + 1)
        with pytest.raises(pg.ShapeError, match="get_rows"):
            ops.get_rows(table, best - 1)


def test_a_compiled_function_computes_its_inputs() -> None:
    half = pg.compile(lambda x: (x // 2 + 1) * 3)
    assert half(pg.tensor([4, 7])).tolist() == [9, 12]
    assert half(pg.tensor([-1, 0])).tolist() == [0, 3]


def test_a_loop_takes_new_numbers_each_time() -> None:
    w = pg.nn.Parameter(np.ones((4, 2), np.float32))
    for i in range(5):
        loss = ops.get_rows(w, pg.tensor([i, i + 1]) % 4).sum()
        loss.backward()
        want = np.zeros((4, 2))
        want[[i % 4, (i + 1) % 4]] = 1.0
        assert w.grad is not None
        assert w.grad.tolist() == want.tolist()
        w.grad = None


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda x, r: x // 0, ValueError, "floor_divide"),
        (lambda x, r: r % pg.tensor([1, 0]), ValueError, "remainder"),
        (lambda x, r: x * 2**31, ValueError, "mul"),
        (lambda x, r: pg.tensor([2**31 - 1, 0]) + 1, ValueError, "add"),
        (lambda x, r: r + 2**25, ValueError, "add"),
        (lambda x, r: r * 2**24 * 3, ValueError, "mul"),
        (lambda x, r: x + pg.tensor([1, 2, 3]), pg.ShapeError, "add"),
        (lambda x, r: x.float() // 2, pg.DTypeError, "floor_divide"),
        (lambda x, r: x % 0.5, pg.DTypeError, "remainder"),
        (lambda x, r: x + None, TypeError, "add"),
        (lambda x, r: x - "1", TypeError, "sub"),
        (lambda x, r: [[1], [1, 2]] * x, (TypeError, ValueError), "mul"),
    ],
)
def test_errors(call: Callable[..., Any], error: Any, name: str) -> None:
    recorded = pg.tensor([[0.1, 0.9], [0.8, 0.2]]).argmax(-1)
    for _ in range(2):
        with pytest.raises(error, match=f"^{name}: "):
            call(pg.tensor([1, 2]), recorded)
