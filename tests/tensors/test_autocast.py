# SPDX-License-Identifier: MIT
from __future__ import annotations

import threading

import numpy as np
import pytest

import pyggml as pg
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import SGD
from pyggml.train.step import TrainStep

rng = np.random.default_rng(3)
W = rng.standard_normal((48, 130)).astype(np.float32)
X = rng.standard_normal((67, 130)).astype(np.float32)


def bf16(x: np.ndarray) -> np.ndarray:
    """Round to the nearest bf16, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def rounded(x: np.ndarray) -> np.ndarray:
    return (bf16(x) if pg.bf16_matmuls() else x).astype(np.float64)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def test_products_round_their_operands_alone():
    w, x = pg.tensor(W), pg.tensor(X)
    with pg.autocast("bf16"):
        y = pg.ops.mul_mat(w, x)
    assert relative(y.numpy(), rounded(X) @ rounded(W).T) < 1e-6
    assert y.dtype.name == "f32"


def test_the_backward_rounds_too():
    w, x = pg.tensor(W, requires_grad=True), pg.tensor(X, requires_grad=True)
    weight = rng.uniform(0.5, 1.5, (67, 48)).astype(np.float32)
    with pg.autocast("bf16"):
        y = pg.ops.mul_mat(w, x)
    (y * pg.tensor(weight)).sum().backward()
    assert relative(w.grad.numpy(), rounded(weight).T @ rounded(X)) < 1e-6
    assert relative(x.grad.numpy(), rounded(weight) @ rounded(W)) < 1e-6


def test_outer_products_and_their_gradients():
    a, b = pg.tensor(X, requires_grad=True), pg.tensor(X[:, :33], requires_grad=True)
    weight = rng.uniform(0.5, 1.5, (33, 130)).astype(np.float32)
    with pg.autocast():
        y = pg.ops.out_prod(a, b)
    assert relative(y.numpy(), rounded(X[:, :33]).T @ rounded(X)) < 1e-6
    (y * pg.tensor(weight)).sum().backward()
    assert relative(a.grad.numpy(), rounded(X[:, :33]) @ rounded(weight)) < 1e-6
    assert relative(b.grad.numpy(), rounded(X) @ rounded(weight).T) < 1e-6


def f16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float64)


def test_f16_rounds_the_operands_and_not_the_gradients():
    w, x = pg.tensor(W, requires_grad=True), pg.tensor(X, requires_grad=True)
    weight = rng.uniform(0.5, 1.5, (67, 48)).astype(np.float32)
    with pg.autocast("f16"):
        y = pg.ops.mul_mat(w, x)
    assert y.dtype.name == "f32"
    assert relative(y.numpy(), f16(X) @ f16(W).T) < 1e-6
    (y * pg.tensor(weight)).sum().backward()
    assert relative(w.grad.numpy(), weight.T.astype(np.float64) @ f16(X)) < 1e-6
    assert relative(x.grad.numpy(), weight.astype(np.float64) @ f16(W)) < 1e-6


def test_f16_in_the_other_products():
    a, b = pg.tensor(X), pg.tensor(X[:, :33])
    experts, ids = pg.tensor(W.reshape(3, 16, 130)), pg.tensor(np.arange(67)[:, None] % 3, "i32")
    with pg.autocast("f16"):
        outer = pg.ops.out_prod(a, b)
        chosen = pg.ops.mul_mat_id(experts, a.reshape(67, 1, 130), ids)
    assert relative(outer.numpy(), f16(X[:, :33]).T @ f16(X)) < 1e-6
    want = [f16(x) @ f16(W.reshape(3, 16, 130)[i % 3]).T for i, x in enumerate(X)]
    assert relative(chosen.numpy()[:, 0], np.asarray(want)) < 1e-6


def test_beyond_the_range_of_f16_is_infinite():
    w, x = pg.tensor(np.full((1, 4), 70000.0, np.float32)), pg.ones((1, 4))
    with pg.autocast("f16"):
        assert np.isinf(pg.ops.mul_mat(w, x).numpy()).all()


@pytest.mark.parametrize(
    ("dtype", "level"),
    [("bf16", "BF16"), ("tf32", "TF32"), ("f32", "UNDEFINED"), ("f16", "UNDEFINED")],
)
def test_attention_gets_the_permission(dtype: str, level: str) -> None:
    """Devices round by it; its level stands behind the other numbers of the op."""
    q = pg.tensor(np.ones((1, 2, 5, 8), np.float32))
    with pg.autocast(dtype):
        out = pg.ops.flash_attn_ext(q, q, q)
    assert list(out.ptr.op_params[5:8]) == 3 * [getattr(pg.lib, f"GGML_PREC_{level}")]


def test_f32_inside_takes_it_back():
    w, x = pg.tensor(W), pg.tensor(X)
    with pg.autocast("bf16"), pg.autocast("f32"):
        inside = pg.ops.mul_mat(w, x)
    outside = pg.ops.mul_mat(w, x)
    np.testing.assert_array_equal(inside.numpy(), outside.numpy())
    assert relative(outside.numpy(), X.astype(np.float64) @ W.T.astype(np.float64)) < 1e-6


def test_an_exception_ends_it():
    with pytest.raises(KeyError), pg.autocast("bf16"):
        raise KeyError
    product = pg.ops.mul_mat(pg.tensor(W), pg.tensor(X))
    assert relative(product.numpy(), X.astype(np.float64) @ W.T.astype(np.float64)) < 1e-6


def test_other_threads_keep_theirs():
    found = []
    with pg.autocast("bf16"):
        worker = threading.Thread(
            target=lambda: found.append(pg.ops.mul_mat(pg.tensor(W), pg.tensor(X)).numpy())
        )
        worker.start()
        worker.join()
    assert relative(found[0], X.astype(np.float64) @ W.T.astype(np.float64)) < 1e-6


@pytest.mark.parametrize("dtype", ["i32", "q8_0"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match="tf32, bf16, f16 or f32"), pg.autocast(dtype):
        raise AssertionError("not reached")


@pytest.mark.parametrize(("name", "own"), [("high", "tf32"), ("medium", "bf16")])
def test_names_of_torch_are_refused_with_ours(name: str, own: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}': pg.autocast\\('{own}'\\)"), pg.autocast(name):
        raise AssertionError("not reached")


def test_tf32_is_f32_on_the_cpu() -> None:
    """Forward and gradients have the same bits; the permission goes to both."""
    found = {}
    for dtype in ("f32", "tf32"):
        w, x = pg.tensor(W, requires_grad=True), pg.tensor(X, requires_grad=True)
        with pg.autocast(dtype):
            y = pg.ops.mul_mat(w, x)
        y.square().sum().backward()
        found[dtype] = [t.numpy() for t in (y, w.grad, x.grad)]
    for ours, theirs in zip(found["tf32"], found["f32"], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert list(y.ptr.op_params[2:4]) == 2 * [pg.lib.GGML_PREC_TF32]


@pytest.mark.parametrize("dtype", ["tf32", "bf16"])
def test_gradients_inherit_the_permission(dtype: str) -> None:
    w, x = pg.tensor(W, requires_grad=True), pg.tensor(X, requires_grad=True)
    with pg.autocast(dtype):
        loss = pg.ops.mul_mat(w, x).square().sum()
    grads = {w: pg.zeros(*W.shape), x: pg.zeros(*X.shape)}
    graph = pg.Graph([loss], loss=loss, grads=grads, overwrite=True)
    kinds = (pg.lib.GGML_OP_MUL_MAT, pg.lib.GGML_OP_OUT_PROD)
    levels = [list(h.op_params[2:4]) for h in graph.headers if h.op in kinds]
    assert levels == 3 * [2 * [getattr(pg.lib, f"GGML_PREC_{dtype.upper()}")]]


def test_a_model_learns_as_in_f32():
    losses = {}
    for precision in ("f32", "tf32", "bf16", "f16"):
        pg.seed(0)
        model = GPT2(GPT2Config(vocab_size=64, context=32, n_embd=64, n_layer=2, n_head=2))
        step = TrainStep(model, SGD(model.parameters(), lr=0.3), clip=1.0, precision=precision)
        ids = np.random.default_rng(0).integers(0, 64, (2, 33)).astype(np.int32)
        losses[precision] = [step([(ids[:, :-1], ids[:, 1:])]).loss for _ in range(20)]
    assert losses["bf16"][-1] < losses["bf16"][0] - 0.5
    # bf16 keeps 8 bits: two parts in a thousand for each operand, less for their sums.
    np.testing.assert_allclose(losses["bf16"], losses["f32"], rtol=4e-3)
    assert losses["tf32"] == losses["f32"]  # on the CPU
    # f16 keeps 11 bits.
    np.testing.assert_allclose(losses["f16"], losses["f32"], rtol=5e-4)
    assert losses["f16"] != losses["f32"]
    if pg.bf16_matmuls():
        assert losses["bf16"] != losses["f32"]


def test_a_training_step_follows_autocast() -> None:
    ids = np.random.default_rng(0).integers(0, 64, (2, 33)).astype(np.int32)
    config = GPT2Config(vocab_size=64, context=32, n_layer=1, n_head=2, n_embd=32)
    graphs, losses = [], {}
    step = TrainStep(GPT2(config), None)
    for dtype in ("f32", "bf16", "f32"):
        with pg.autocast(dtype):
            graphs.append(step.record((2, 32), gradients=False))
            loss, _ = step.loss_sum((ids[:, :-1], ids[:, 1:]))
        assert losses.setdefault(dtype, loss) == loss
    assert graphs[0] is graphs[2] is not graphs[1]
    if pg.bf16_matmuls():
        assert losses["bf16"] != losses["f32"]
