# SPDX-License-Identifier: MIT
"""Every op's numbers against NumPy in float64, and its gradient against central differences."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.graph import backward_checks as differentiable
from pyggml.testing import CASES, ELSEWHERE, TOLERANCES, Case, run_case
from pyggml.testing.__main__ import main

F32 = TOLERANCES["f32"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_forward_and_gradient(case: Case) -> None:
    result = run_case(case, "f32", pg.device("cpu"))
    assert result.forward is not None, result.reason
    assert result.forward <= F32[0]
    if case.grad == ():
        return
    assert result.backward is not None, result.reason
    assert result.backward <= F32[1]


@pytest.mark.parametrize("case", [c for c in CASES if c.grad is None], ids=lambda c: c.id)
def test_gradient_of_an_operand_used_twice(case: Case) -> None:
    result = run_case(case, "f32", pg.device("cpu"), uses=2)
    assert result.backward is not None, result.reason
    assert result.backward <= F32[1]


@pytest.mark.parametrize("dtype", [pytest.param("f16", marks=pytest.mark.slow), "bf16"])
def test_no_case_fails_in_half_precision(dtype: str) -> None:
    results = [run_case(case, dtype, pg.device("cpu")) for case in CASES]
    assert [(r.case.id, r.forward, r.backward) for r in results if r.verdict == "FAIL"] == []
    assert sum(r.verdict == "OK" for r in results) >= 30


def test_the_table_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--op", "gelu", "--type", "f32"]) == 0
    out = capsys.readouterr().out
    assert out.count(" OK") == sum(c.name == "gelu" for c in CASES) + 1
    assert "0 failed" in out
    with pytest.raises(SystemExit):
        main(["--op", "no_such_op"])
    assert "no op 'no_such_op'; there are abs, acc" in capsys.readouterr().err


def test_no_case_holds_a_tensor() -> None:
    """It would be of the CPU, whatever device the table is for."""
    cells = [cell.cell_contents for case in CASES for cell in case.fn.__closure__ or ()]
    held = [v for cell in cells for v in (cell.values() if isinstance(cell, dict) else [cell])]
    assert not any(isinstance(value, pg.Tensor) for value in held)


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


@pytest.mark.parametrize("shape", [(1,), (15,), (33,), (7, 5), (3, 129)])
@pytest.mark.parametrize("factor", [None, 1.0, 0.3])
def test_opt_step_adamw_is_the_formula(shape: tuple[int, ...], factor: float | None) -> None:
    rng = np.random.default_rng(0)
    w, g, m, v = (rng.normal(size=shape) for _ in range(4))
    v = np.abs(v)
    lr, b1, b2, eps, wd, t = 0.1, 0.9, 0.99, 1e-8, 0.1, 3
    hyper = [lr, b1, b2, eps, wd, 1 / (1 - b1**t), 1 / (1 - b2**t)]
    tensors = [pg.tensor(x) for x in (w, g, m, v)]
    if factor is not None:
        g, hyper = factor * g, [*hyper, factor]
    pg.Graph([], effects=[ops.opt_step_adamw(*tensors, pg.tensor(hyper))]).run()
    m2, v2 = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    want = w * (1 - lr * wd) - lr * (m2 * hyper[5]) / (np.sqrt(v2 * hyper[6]) + eps)
    np.testing.assert_allclose(tensors[0].numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tensors[2].numpy(), m2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tensors[3].numpy(), v2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1,), (15,), (33,), (2, 3), (3, 129)])
@pytest.mark.parametrize("factor", [None, 1.0, 0.3])
def test_opt_step_sgd_is_the_formula(shape: tuple[int, ...], factor: float | None) -> None:
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=shape), rng.normal(size=shape)
    param = pg.tensor(w)
    hyper = pg.tensor([0.5, 0.1] if factor is None else [0.5, 0.1, factor])
    pg.Graph([], effects=[ops.opt_step_sgd(param, pg.tensor(g), hyper)]).run()
    want = w * 0.95 - 0.5 * g * (1.0 if factor is None else factor)
    np.testing.assert_allclose(param.numpy(), want, rtol=1e-5, atol=1e-6)


# What NumPy's power and its derivative are at 0, below it, and where numbers leave f32's range.
@pytest.mark.parametrize(
    ("exponent", "x", "value", "slope"),
    [
        (1.5, 0.0, 0.0, 0.0),
        (2.5, 0.0, 0.0, 0.0),
        (2.5, -0.0, 0.0, 0.0),
        (65.5, 0.0, 0.0, 0.0),
        (0.7, 0.0, 0.0, np.inf),
        (0.7, -0.0, 0.0, np.inf),
        (0.25, 0.0, 0.0, np.inf),
        (-0.5, 0.0, np.inf, -np.inf),
        (0, 0.0, 1.0, 0.0),
        (0, np.inf, 1.0, 0.0),
        (1, 0.0, 0.0, 1.0),
        (2, 0.0, 0.0, 0.0),
        (-1, 0.0, np.inf, -np.inf),
        (-2, 0.0, np.inf, -np.inf),
        (-2, -0.0, np.inf, np.inf),
        (-3, 0.0, np.inf, -np.inf),
        (-20, 1000.0, 0.0, 0.0),
        (65, 0.0, 0.0, 0.0),
        (65, -1.0, -1.0, 65.0),
        (100, -1.0, 1.0, -100.0),
        (101, -1.0, -1.0, 101.0),
        (-65, -1.0, -1.0, -65.0),
        (-66, -1.0, 1.0, 66.0),
        (1e300, 1.0, 1.0, None),
        (1.5, -1.0, np.nan, np.nan),
        (0.7, -1.0, np.nan, np.nan),
    ],
)
def test_pow_at_the_edges(exponent, x, value, slope) -> None:
    t = pg.tensor([x, 1.0], requires_grad=True)  # beside it, 1 stays what it is
    y = ops.pow(t, exponent)
    np.testing.assert_array_equal(y.numpy(), np.float32([value, 1]))
    if slope is not None:
        y.sum().backward()
        np.testing.assert_array_equal(t.grad.numpy(), np.float32([slope, exponent]))


# ggml's comparisons take NaN for one side; the docstrings say for which.
@pytest.mark.parametrize(
    "dtype", ["q4_0", "q5_0", "q8_0", "q4_K", "q6_K", "tq1_0", "tq2_0", "mxfp4"]
)
@pytest.mark.parametrize("rows", [3, 300])
def test_products_of_quantized_weights(dtype: str, rows: int) -> None:
    """Few rows are rounded to 8 bits, many are not; 1,280 values are several blocks of k."""
    rng = np.random.default_rng(0)
    w = pg.tensor(rng.normal(size=(64, 1280)).astype(np.float32), dtype)
    x = rng.normal(size=(rows, 1280)).astype(np.float32)
    want = x.astype(np.float64) @ w.numpy().astype(np.float64).T
    got = ops.mul_mat(w, pg.tensor(x)).numpy()
    assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)


def test_flash_attention_refuses_masks_beyond_f16() -> None:
    q = pg.ones((1, 1, 2, 4))
    for number in (-1e9, 70000.0):
        with pytest.raises(ValueError, match="hide elements with -inf"):
            ops.flash_attn_ext(q, q, q, pg.tensor([[0.0, number], [0.0, 0.0]]))
    hidden = ops.flash_attn_ext(q, q, q, pg.tensor([[-np.inf, -np.inf], [-65504.0, 65504.0]]))
    np.testing.assert_array_equal(hidden.numpy()[0, :, 0], [[0.0] * 4, [1.0] * 4])


def test_a_gradient_that_disappears_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdicts(name: str) -> dict[str, str]:
        case = next(c for c in CASES if c.name == name)
        return {dtype: run_case(case, dtype, pg.device("cpu")).verdict for dtype in TOLERANCES}

    assert verdicts("sqr") == {"f32": "OK", "f16": "unsupported", "bf16": "unsupported"}
    assert set(verdicts("concat").values()) == {"OK"}
    left = [op for op in differentiable._OPS if op not in ("SQR", "CONCAT")]
    monkeypatch.setattr(differentiable, "_OPS", left)
    assert verdicts("sqr")["f32"] == "FAIL"
    assert set(verdicts("concat").values()) == {"FAIL"}
