# SPDX-License-Identifier: MIT
"""The loss of a head by parts: the numbers of all logits at once, in less memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import RandomWindows
from pyggml.graph import spare_memory
from pyggml.models import GPT2, GPT2Config
from pyggml.nn import functional as F
from pyggml.nn.losses import linear
from pyggml.optim import SGD, AdamW
from pyggml.train import Trainer
from pyggml.train.step import TrainStep

ROWS, WIDTH, CLASSES = 96, 16, 512
LOGITS_BYTES = 4 * ROWS * CLASSES


@pytest.fixture
def by_parts(monkeypatch):
    """Six parts where 64 MiB would be one."""
    monkeypatch.setattr(linear, "_PART_BYTES", LOGITS_BYTES // 6)


def arrays(ignored: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, ROWS // 4, WIDTH)).astype(np.float32)
    w = rng.standard_normal((CLASSES, WIDTH)).astype(np.float32) * 0.3
    y = rng.integers(0, CLASSES, (4, ROWS // 4)).astype(np.int32)
    y.flat[:ignored] = -100
    return x, w, y


@dataclass
class Gpu:
    """What the rule for parts reads of a device."""

    name: str
    memory_total: int


GIB = 2**30


@pytest.mark.parametrize(
    ("name", "total", "results", "expected"),
    [
        ("cuda:0", 24 * GIB, 1, 24 * GIB // 16),
        ("cuda:1", 24 * GIB, 4, 24 * GIB // 64),
        ("cuda:0", 192 * GIB, 1, 2**32),  # kernels count elements in 31 bits
        ("cuda:0", 0, 1, 2**26),  # the driver did not tell
        *((name, 80 * GIB, 1, 2**26) for name in ("cpu", "metal", "vulkan:0", "rocm:0")),
    ],
)
def test_the_size_of_a_part_is_of_the_device(name, total, results, expected):
    assert linear._part_bytes(Gpu(name, total), results) == expected
    with spare_memory():
        assert linear._part_bytes(Gpu(name, total), results) == 2**26


@pytest.mark.parametrize("limit", [None, "1GB"])
def test_a_run_with_a_limit_has_small_parts(monkeypatch, limit):
    seen = []
    part_bytes = linear._part_bytes

    def spy(where, results):
        seen.append(part_bytes(Gpu("cuda:0", 80 * GIB), results))
        return part_bytes(where, results)

    monkeypatch.setattr(linear, "_part_bytes", spy)
    model = GPT2(GPT2Config(vocab_size=16, context=8, n_embd=8, n_layer=1, n_head=2))
    data = RandomWindows(np.arange(64, dtype=np.int32) % 16, 4)
    options = {"batch_size": 2, "steps": 1, "memory_limit": limit}
    Trainer(model, data, None, optimizer=AdamW(model), **options).fit()
    assert set(seen) == {2**26 if limit else 2**32}


def gradients(loss_of, reduction: str) -> tuple[pg.Graph, np.ndarray, np.ndarray, np.ndarray]:
    x, w, y = arrays()
    leaf, weight = pg.tensor(x, requires_grad=True), pg.tensor(w, requires_grad=True)
    value = loss_of(leaf * 1.0, weight, pg.tensor(y), reduction=reduction)
    loss = value if value.ndim == 0 else (value * value).sum()
    grads = {t: pg.zeros(t.shape) for t in (leaf, weight)}
    graph = pg.Graph([value, loss], loss=loss, grads=grads)
    graph.run()
    return graph, graph.read(value), *(g.numpy() for g in grads.values())


def whole(x, weight, targets, reduction):
    return F.cross_entropy(F.linear(x, weight), targets, reduction=reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_same_numbers_in_less_memory(by_parts, reduction):
    graph, loss, dx, dw = gradients(F.linear_cross_entropy, reduction)
    plain, wanted, dx_wanted, dw_wanted = gradients(whole, reduction)
    np.testing.assert_array_equal(loss, wanted)
    np.testing.assert_array_equal(dx, dx_wanted)
    # The weight's is a sum over parts.
    np.testing.assert_allclose(dw, dw_wanted, atol=2e-6 * np.abs(dw_wanted).max())
    # One part of six is there at a time, but where the gradient of one needs the losses of all.
    assert reduction == "none" or graph.memory_bytes < plain.memory_bytes - LOGITS_BYTES // 2


def test_a_soft_cap_and_a_bias(by_parts):
    """By parts, at once, and by NumPy."""
    x, w, y = arrays()
    bias = np.linspace(-1, 1, CLASSES).astype(np.float32)
    found = []
    for parts in (True, False):
        leaves = [pg.tensor(a, requires_grad=True) for a in (x, w, bias)]
        if parts:
            loss = F.linear_cross_entropy(*leaves[:2], pg.tensor(y), softcap=2.0, bias=leaves[2])
        else:
            capped = 2.0 * pg.ops.tanh(F.linear(*leaves) * 0.5)
            loss = F.cross_entropy(capped, pg.tensor(y))
        loss.backward()
        found.append([loss.item(), *(leaf.grad.numpy() for leaf in leaves)])
    capped = 2.0 * np.tanh((x @ w.T + bias) / 2.0)
    rows = np.log(np.exp(capped).sum(-1)) - np.take_along_axis(
        capped, np.maximum(y, 0)[..., None], -1
    ).squeeze(-1)
    assert found[0][0] == pytest.approx(rows[y >= 0].mean(), rel=1e-5)
    for ours, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=2e-6 * np.abs(wanted).max())


def test_nothing_counts(by_parts):
    x, w, _ = arrays()
    y = pg.tensor(np.full(x.shape[:-1], -100, np.int32))
    assert F.linear_cross_entropy(pg.tensor(x), pg.tensor(w), y).item() == 0.0


def test_without_a_backward_parts_follow_each_other(by_parts):
    x, w, y = map(pg.tensor, arrays())
    loss = F.linear_cross_entropy(x, w, y)
    assert pg.Graph([loss]).memory_bytes < LOGITS_BYTES // 2
    assert loss.item() == whole(x, w, y, "mean").item()


def test_a_frozen_head(by_parts):
    x, w, y = arrays()
    leaf = pg.tensor(x, requires_grad=True)
    F.linear_cross_entropy(leaf * 1.0, pg.tensor(w), pg.tensor(y), reduction="sum").backward()
    other = pg.tensor(x, requires_grad=True)
    whole(other * 1.0, pg.tensor(w), pg.tensor(y), "sum").backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), other.grad.numpy())


def test_wrong_arguments():
    x, w, y = map(pg.tensor, arrays())
    with pytest.raises(pg.ShapeError, match=r"x .*weight"):
        F.linear_cross_entropy(x, w[:, :3], y)
    with pytest.raises(pg.ShapeError, match="targets"):
        F.linear_cross_entropy(x, w, y[:2])
    with pytest.raises(pg.DTypeError, match="targets"):
        F.linear_cross_entropy(x, w, x[:, :, 0])
    with pytest.raises(ValueError, match="reduction"):
        F.linear_cross_entropy(x, w, y, reduction="most")


def trained(fused: bool, checkpointing: bool) -> tuple[int, list[float], np.ndarray]:
    pg.seed(0)
    model = GPT2(GPT2Config(vocab_size=CLASSES, context=32, n_embd=32, n_layer=2, n_head=2))
    model.checkpointing = checkpointing
    options = {"fused_update": True} if fused else {}
    step = TrainStep(model, AdamW(model.parameters(), lr=1e-2, **options))
    ids = np.random.default_rng(0).integers(0, CLASSES, (4, 25), dtype=np.int32)
    losses = [step([(ids[:, :-1], ids[:, 1:])]).loss for _ in range(3)]
    return step.activation_bytes, losses, model.parameters()[0].numpy()


@pytest.mark.parametrize("fused", [False, True])
def test_a_model_in_training(monkeypatch, fused):
    memory, losses, weights = trained(fused, False)
    monkeypatch.setattr(linear, "_PART_BYTES", LOGITS_BYTES // 6)
    less, again, close = trained(fused, False)
    np.testing.assert_allclose(again, losses, rtol=1e-5)
    np.testing.assert_allclose(close, weights, atol=1e-3)
    assert less < memory
    # Parts, checkpoints and early updates go together, to the bit.
    _, other, same = trained(not fused, True)
    assert other == again
    np.testing.assert_array_equal(same, close)


def test_a_loss_that_is_not_finite_stops_before_any_update(by_parts):
    pg.seed(0)
    model = GPT2(GPT2Config(vocab_size=CLASSES, context=32, n_embd=32, n_layer=1, n_head=2))
    model.transformer.ln_f.weight.copy_(np.full(32, np.nan, np.float32))
    before = [p.numpy() for p in model.parameters()]
    step = TrainStep(model, SGD(model.parameters(), lr=0.1, fused_update=True))
    ids = np.zeros((4, 25), np.int32)
    with pytest.raises(ArithmeticError, match="loss must be finite"):
        step([(ids[:, :-1], ids[:, 1:])])
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), old)


def test_postpone_refuses_what_is_stored():
    with pytest.raises(ValueError, match="postpone: t "):
        pg.postpone(pg.ones((2,)))
    with pytest.raises(TypeError, match="postpone: t must be a Tensor"):
        pg.postpone(3)
