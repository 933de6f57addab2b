# SPDX-License-Identifier: MIT
"""NaN in, NaN out; infinities as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.nn import functional as F
from pyggml.testing import CASES, INFINITE, Case, run_nonfinite

NAN, INF = np.nan, np.inf
# One row of each op whose kernel compares; the others add and multiply, which spreads a NaN.
COMPARING = """abs sgn step relu leaky_relu hardsigmoid hardswish elu xielu clamp reglu swiglu_oai
    l2_norm argmax top_k pool_1d pool_2d soft_max cross_entropy_rows max amin argmin topk
    vector_norm softmax""".split()
FIRST = list({(c.name, c.variant): c for c in reversed(CASES) if c.name in COMPARING}.values())


@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.id)
def test_ops_that_compare(case: Case) -> None:
    assert run_nonfinite(case, pg.device("cpu")) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c not in FIRST], ids=lambda c: c.id)
def test_all_ops(case: Case) -> None:
    assert run_nonfinite(case, pg.device("cpu")) == []


def test_exceptions_are_ops() -> None:
    assert set(INFINITE) <= {c.name for c in CASES}


@pytest.mark.parametrize(
    ("row", "index"),
    [
        ([1, 1, 1], 0),
        ([0, 3, 3, 2], 1),
        ([-INF, -INF], 0),
        ([1, NAN, 5, NAN], 1),
        ([NAN, INF], 0),
        ([-0.0, 0.0], 0),
    ],
)
def test_argmax_takes_the_first_of_the_largest(row: list[float], index: int) -> None:
    assert ops.argmax(pg.tensor(row, "f32")).item() == index


def test_top_k_of_rows_full_of_nan() -> None:
    x = np.random.default_rng(0).normal(size=(3, 301)).astype(np.float32)
    x[:, ::2] = NAN
    found = ops.top_k(pg.tensor(x), 160).numpy()
    assert (np.sort(found[:, :151]) == np.arange(0, 301, 2)).all()
    rest = np.take_along_axis(x, found[:, 151:], 1)
    assert (rest == -np.sort(-x[:, 1::2])[:, :9]).all()


def test_sorting_has_nan_as_the_largest() -> None:
    x = pg.tensor([NAN, INF, 1.0, -INF, NAN, 2.0])
    for descending in (False, True):
        want = [NAN, NAN, INF, 2, 1, -INF][:: 1 if descending else -1]
        np.testing.assert_array_equal(pg.sort(x, descending=descending).values.numpy(), want)
        for k in range(1, 7):
            values, places = pg.topk(x, k, largest=descending)
            np.testing.assert_array_equal(values.numpy(), want[:k])
            np.testing.assert_array_equal(x.numpy()[places.numpy()], want[:k])


# The value and the gradient at -inf, at inf and at 0; those of torch.
SELU, SCALE = 1.6732632423543772 * 1.0507009873554805, 1.0507009873554805
ACTIVATIONS = [
    (F.elu, (), [-1, INF, 0], [0, 1, 1]),
    (F.elu, (0.5,), [-0.5, INF, 0], [0, 1, 0.5]),
    (F.elu, (2.0,), [-2, INF, 0], [0, 1, 2]),
    (F.selu, (), [-SELU, INF, 0], [0, SCALE, SELU]),
    (F.celu, (0.5,), [-0.5, INF, 0], [0, 1, 1]),
    (F.softplus, (), [0, INF, np.log(2)], [0, 1, 0.5]),
    (F.softplus, (2.0,), [0, INF, np.log(2) / 2], [0, 1, 0.5]),
    (F.logsigmoid, (), [-INF, 0, -np.log(2)], [1, 0, 0.5]),
    (F.hardtanh, (-2.0, 2.0), [-2, 2, 0], [0, 0, 1]),
    (F.gelu, ("tanh",), [0, INF, 0], [0, 1, 0.5]),  # of torch: NaN, 0 times infinity
]


@pytest.mark.parametrize(("fn", "more", "values", "grads"), ACTIVATIONS)
def test_activations_at_infinity(
    fn: Any, more: tuple[Any, ...], values: list[float], grads: list[float]
) -> None:
    x = pg.tensor([-INF, INF, 0.0], requires_grad=True)
    y = fn(x, *more)
    np.testing.assert_allclose(y.numpy(), values, rtol=1e-5)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), grads, rtol=1e-5)


@pytest.mark.parametrize("at", range(4))
def test_max_pooling_by_any_order(at: int) -> None:
    """The NaN first, in the middle and last in its window; the gradient goes to it."""
    image = np.array([[1, 4, -INF, -INF], [2, 3, -INF, -INF]], np.float32)
    image[at // 2, at % 2] = NAN
    x = pg.tensor(image[None, None], requires_grad=True)
    y = ops.pool_2d(x, 2)
    np.testing.assert_array_equal(y.numpy().ravel(), [NAN, -INF])
    y.sum().backward()
    want = np.isnan(image)
    want[0, 2] = True
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy()[0, 0], want)


@pytest.mark.parametrize("dtype", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K"])
@pytest.mark.parametrize("rows", [1, 5])
def test_products_of_quantized_weights(dtype: str, rows: int) -> None:
    """No product with a row that has NaN or an infinity is finite; those of other rows stay."""
    rng = np.random.default_rng(1)
    w = pg.tensor(rng.normal(size=(8, 512)).astype(np.float32), dtype)
    x = rng.normal(size=(rows, 512)).astype(np.float32)
    good = ops.mul_mat(w, pg.tensor(x)).numpy()
    assert np.isfinite(good).all()
    for at, bad in [(0, NAN), (13, INF), (200, -INF), (511, NAN), (37, NAN)]:
        spoiled = x.copy()
        spoiled[rows // 2, at] = bad
        got = ops.mul_mat(w, pg.tensor(spoiled)).numpy()
        assert not np.isfinite(got[rows // 2]).any()
        np.testing.assert_array_equal(np.delete(got, rows // 2, 0), np.delete(good, rows // 2, 0))
