# SPDX-License-Identifier: MIT
"""Every op's numbers against NumPy in float64, and its gradient against central differences."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops

from .cases import CASES, ELSEWHERE, Case


def nmse(got: np.ndarray, want: np.ndarray) -> float:
    """Squared error over squared size."""
    return float(((got - want) ** 2).sum() / max((want**2).sum(), 1e-30))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_forward(case: Case) -> None:
    operands = case.operands()
    result = case.run(*[pg.tensor(x) for x in operands])
    want = case.reference(*operands)
    got = result.numpy().astype(np.float64)
    assert result.shape == want.shape == got.shape
    assert nmse(got, want) <= 1e-7


def numeric_gradient(case: Case, operands: list[np.ndarray], which: int, weight: np.ndarray):
    """Central differences of sum(weight * ref) in float64."""
    h = 1e-5
    x = operands[which]
    grad = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * h
            values.append(
                (case.reference(*operands[:which], moved, *operands[which + 1 :]) * weight).sum()
            )
        grad[at] = (values[0] - values[1]) / (2 * h)
    return grad


def run_backward(case: Case, loss: pg.Tensor) -> None:
    try:
        loss.backward()
    except pg.GradientError as error:
        pytest.skip(f"{case.name} on cpu: {error}")


@pytest.mark.parametrize("case", [c for c in CASES if c.grad != ()], ids=lambda c: c.id)
def test_gradient(case: Case) -> None:
    operands = case.operands(1)
    which = range(len(operands)) if case.grad is None else case.grad
    tensors = [pg.tensor(x, requires_grad=i in which) for i, x in enumerate(operands)]
    result = case.run(*tensors)
    weight = np.random.default_rng(2).uniform(0.5, 1.5, result.shape)
    weight = weight.astype(np.float32).astype(np.float64)
    run_backward(case, (result * pg.tensor(weight)).sum())
    for i in which:
        want = numeric_gradient(case, operands, i, weight)
        grad = tensors[i].grad
        assert grad is not None
        error = np.linalg.norm(grad.numpy() - want) / max(np.linalg.norm(want), 1e-3)
        assert error <= 1e-4, f"operand {i}: {error:.2e}"


@pytest.mark.parametrize("case", [c for c in CASES if c.grad is None], ids=lambda c: c.id)
def test_gradient_of_an_operand_used_twice(case: Case) -> None:
    """d(f(x) + f(x)) is twice d(f(x)): gradients of several uses add up."""
    operands = case.operands(3)
    grads = []
    for uses in (1, 2):
        tensors = [pg.tensor(x, requires_grad=True) for x in operands]
        total = case.run(*tensors).sum()
        if uses == 2:
            total = total + case.run(*tensors).sum()
        run_backward(case, total)
        grads.append([t.grad.numpy() for t in tensors])  # type: ignore[union-attr]
    for once, twice in zip(*grads, strict=True):
        np.testing.assert_allclose(twice, 2 * once, rtol=1e-5, atol=1e-5)


def test_every_op_has_a_case() -> None:
    assert {c.name for c in CASES} | ELSEWHERE == set(ops.__all__)


def test_set_rows_writes_in_place_and_reads_back() -> None:
    dst = pg.zeros((5, 3))
    rows = pg.tensor(np.array([4, 1], np.int64), "i64")
    written = ops.set_rows(dst, pg.tensor([[1.0, 2, 3], [4, 5, 6]]), rows)
    g = pg.Graph([written.sum()])
    g.run()
    want = np.zeros((5, 3))
    want[[4, 1]] = [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_array_equal(dst.numpy(), want)


def test_cpy_into_a_view() -> None:
    dst = pg.zeros((4, 3))
    g = pg.Graph([], effects=[ops.cpy(pg.ones((2, 3)), dst[1:3])])
    g.run()
    np.testing.assert_array_equal(dst.numpy().sum(1), [0, 3, 3, 0])


def test_opt_step_adamw_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    w, g, m, v = (rng.normal(size=(7, 5)) for _ in range(4))
    v = np.abs(v)
    lr, b1, b2, eps, wd, t = 0.1, 0.9, 0.99, 1e-8, 0.1, 3
    hyper = [lr, b1, b2, eps, wd, 1 / (1 - b1**t), 1 / (1 - b2**t)]
    tensors = [pg.tensor(x) for x in (w, g, m, v)]
    pg.Graph([], effects=[ops.opt_step_adamw(*tensors, pg.tensor(hyper))]).run()
    m2, v2 = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    want = w * (1 - lr * wd) - lr * (m2 * hyper[5]) / (np.sqrt(v2 * hyper[6]) + eps)
    np.testing.assert_allclose(tensors[0].numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tensors[2].numpy(), m2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tensors[3].numpy(), v2, rtol=1e-5, atol=1e-6)


def test_opt_step_sgd_is_the_formula() -> None:
    w, g = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    param = pg.tensor(w)
    pg.Graph([], effects=[ops.opt_step_sgd(param, pg.tensor(g), pg.tensor([0.5, 0.1]))]).run()
    np.testing.assert_allclose(param.numpy(), w * 0.95 - 0.5 * g, rtol=1e-6)
