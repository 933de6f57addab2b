# SPDX-License-Identifier: MIT
"""A mixture of experts and its balance, against one token at a time in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn

RNG = np.random.default_rng(8)


def silu(x):
    return x / (1 + np.exp(-x))


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("shared", [0, 6])
@pytest.mark.parametrize(("experts", "used"), [(1, 1), (4, 2), (5, 5), (6, 1)])
def test_each_token_goes_through_its_experts(experts, used, normalize, shared):
    layer = nn.MixtureOfExperts(8, 5, experts, used, normalize, shared)
    for p in layer.parameters():
        p.copy_(draw(*p.shape))
    x = draw(3, 4, 8)
    w = {key: array.astype(np.float64) for key, array in layer.state_dict().items()}
    want = np.zeros((12, 8))
    for n, token in enumerate(x.reshape(12, 8)):
        logits = w["gate.weight"] @ token
        p = np.exp(logits - logits.max())
        p /= p.sum()
        chosen = np.argsort(-p)[:used]
        share = p[chosen] / (p[chosen].sum() if normalize else 1)
        for e, weight in zip(chosen, share, strict=True):
            gate = silu(w["experts.gate_proj.weight"][e] @ token)
            inner = gate * (w["experts.up_proj.weight"][e] @ token)
            want[n] += weight * (w["experts.down_proj.weight"][e] @ inner)
        if shared:
            gate = silu(w["shared_expert.gate_proj.weight"] @ token)
            inner = gate * (w["shared_expert.up_proj.weight"] @ token)
            open_ = 1 / (1 + np.exp(-(w["shared_expert_gate.weight"] @ token)))
            want[n] += open_ * (w["shared_expert.down_proj.weight"] @ inner)
    got = layer(pg.tensor(x))
    np.testing.assert_allclose(got.numpy(), want.reshape(x.shape), rtol=1e-4, atol=1e-4)


def test_balance_is_least_where_all_are_used_alike():
    even = pg.tensor(np.full((4, 4), 0.25, np.float32))
    each = pg.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
    assert nn.balance_loss([(even, each)]).item() == pytest.approx(2.0)
    sure = pg.tensor(np.eye(4, dtype=np.float32)[[0, 0, 0, 0]])
    one = pg.tensor([[0], [0], [0], [0]])
    assert nn.balance_loss([(sure, one)]).item() == pytest.approx(4.0)
    # Layers are taken together: two that favour different experts make up for each other.
    other = pg.tensor(np.eye(4, dtype=np.float32)[[1, 1, 1, 1]])
    both = nn.balance_loss([(sure, one), (other, pg.tensor([[1], [1], [1], [1]]))])
    assert both.item() == pytest.approx(2.0)


def test_the_balance_loss_balances():
    pg.seed(0)
    layer = nn.MixtureOfExperts(8, 5, 4, 1)
    x = pg.tensor(draw(64, 8) + 1.0)
    layer.gate.weight.copy_(np.eye(4, 8, dtype=np.float32) * [[3], [1], [1], [1]])

    def loss():
        found: list = []
        layer(x, found)
        return nn.balance_loss(found)

    before = loss().item()
    for _ in range(60):
        layer.gate.zero_grad()
        loss().backward()
        weight = layer.gate.weight
        weight.copy_(weight.numpy() - 0.5 * weight.grad.numpy())
    assert before > 1.3
    assert loss().item() < 1.05


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="used must be at most experts, 2; got 3"):
        nn.MixtureOfExperts(4, 4, 2, 3)
    with pytest.raises(pg.ShapeError, match=r"x must be \(..., 4\); got \(2, 5\)"):
        nn.MixtureOfExperts(4, 4, 2, 1)(pg.ones((2, 5)))
    with pytest.raises(ValueError, match="at least one layer"):
        nn.balance_loss([])
