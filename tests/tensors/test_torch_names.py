# SPDX-License-Identifier: MIT
"""Functions, arguments and lines that users of PyTorch write."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn import functional as F


def test_the_larger_of_two_is_maximum() -> None:
    for name in ("max", "min"):
        with pytest.raises(TypeError, match=rf"{name}: dim .* pg\.{name}imum\(a, b\)"):
            getattr(pg, name)(pg.ones(2), pg.ones(2))
        with pytest.raises(TypeError, match=f"{name}imum"):
            getattr(pg.ones(2), name)(pg.ones(2))


def test_negative_numbers_of_a_tensor_count_from_the_end() -> None:
    x = pg.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    ids = pg.tensor([-1, 0])
    np.testing.assert_array_equal(x[ids].numpy(), x.numpy()[[-1, 0]])
    np.testing.assert_array_equal(x[:, ids].numpy(), x.numpy()[:, [-1, 0]])
    np.testing.assert_array_equal(x[ids, ids].numpy(), x.numpy()[[-1, 0], [-1, 0]])
    np.testing.assert_array_equal(x.index_select(1, ids).numpy(), x.numpy()[:, [-1, 0]])
    for wrong in ([-4, 0], [3]):
        with pytest.raises((IndexError, ValueError)):
            x[pg.tensor(wrong)]


def test_a_computed_tensor_is_registered_as_a_buffer() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("tril", pg.tril(pg.ones(3, 3)))

        def forward(self, x: pg.Tensor) -> pg.Tensor:
            return x.masked_fill(self.tril == 0, -1.0)

    head = Head()
    np.testing.assert_array_equal(head.state_dict()["tril"], np.tril(np.ones((3, 3))))
    assert [name for name, _ in head.named_buffers()] == ["tril"]
    np.testing.assert_array_equal(head(pg.ones(3, 3)).numpy(), 2 * np.tril(np.ones((3, 3))) - 1)
    with pytest.raises(TypeError, match="detach"):
        head.register_buffer("scale", nn.Parameter([1.0]) * 2)


def test_einsum_spells_dots_out() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 3, 4), np.float32), rng.random((2, 4, 5), np.float32)
    for equation, one, two in (
        ("...ij,...jk->...ik", a, b),
        ("...ij,...jk", a, b),
        ("...ij,jk->...ik", a, b[0]),
        ("i...,i...->...", a, a),
    ):
        got = pg.einsum(equation, pg.tensor(one), pg.tensor(two)).numpy()
        np.testing.assert_allclose(got, np.einsum(equation, one, two), rtol=1e-5)
    with pytest.raises(ValueError, match="einsum"):
        pg.einsum("...ijkl->...i", pg.tensor(a))
    with pytest.raises(ValueError, match="operands"):
        pg.einsum("...i,...i", pg.tensor(a))


def test_dropout_asks_for_training() -> None:
    x = pg.ones(64)
    assert F.dropout(x, 0.5, training=False) is x
    assert sorted({*F.dropout(x, 0.5, True).tolist()}) == [0.0, 2.0]
    assert F.dropout(x, 0.5, seed=3).tolist() == F.dropout(x, 0.5, seed=3).tolist()
    with pytest.raises(TypeError, match="training"):
        F.dropout(x, 0.5, 7)
    with pytest.raises(ValueError, match="p must"):
        F.dropout(x, 1.5, training=False)


def test_rolls_need_an_axis_for_each_shift() -> None:
    with pytest.raises(ValueError, match="shifts"):
        pg.roll(pg.ones(2, 3), (1, 2), 0)
    with pytest.raises(ValueError, match="shifts"):
        pg.roll(pg.ones(2, 3), (1, 2))


def test_a_summary_takes_a_shape() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    want = str(nn.summary(model, pg.ones(2, 4)))
    assert str(nn.summary(model, (2, 4))) == str(nn.summary(model, input_size=(2, 4))) == want


def test_probabilities_at_their_ends_have_a_finite_loss() -> None:
    torch = pytest.importorskip("torch")
    x, t = [0.0, 1.0, 1.0, 0.0, 0.3], [1.0, 1.0, 0.0, 0.0, 0.6]
    p = pg.tensor(x, requires_grad=True)
    loss = F.binary_cross_entropy(p, pg.tensor(t))
    want = torch.nn.functional.binary_cross_entropy(torch.tensor(x), torch.tensor(t))
    np.testing.assert_allclose(loss.item(), want.item(), rtol=1e-5)
    loss.backward()
    assert np.isfinite(p.grad.numpy()).all()


def test_ignored_targets_do_not_count() -> None:
    torch = pytest.importorskip("torch")
    x = np.log(np.random.default_rng(0).dirichlet(np.ones(4), 3)).astype(np.float32)
    target, weight = [1, -100, 3], [0.5, 1.0, 2.0, 3.0]
    for reduction in ("mean", "sum", "none"):
        got = F.nll_loss(pg.tensor(x), pg.tensor(target), pg.tensor(weight), reduction=reduction)
        want = torch.nn.functional.nll_loss(
            torch.tensor(x), torch.tensor(target), torch.tensor(weight), reduction=reduction
        )
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
