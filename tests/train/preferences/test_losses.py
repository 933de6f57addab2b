# SPDX-License-Identifier: MIT
"""The losses of preferences against the papers' formulas in PyTorch: values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml.errors import ShapeError
from pyggml.train.preferences import (
    dpo_loss,
    group_advantages,
    grpo_loss,
    kto_loss,
    orpo_loss,
    simpo_loss,
)

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)
# Sums over completions, and means over their tokens.
SUMS = [RNG.uniform(-40, -5, 7).astype(np.float32) for _ in range(4)]
SUMS[0][0], SUMS[1][0] = -500.0, -2.0
MEANS = [RNG.uniform(-6, -0.01, 7).astype(np.float32) for _ in range(4)]
MEANS[0][0] = -1e-4


def dpo(pc, pr, rc, rr, beta=0.1, smoothing=0.0):
    # Rafailov et al., equation 7; Mitchell's note on conservative DPO.
    h = beta * ((pc - rc) - (pr - rr))
    return -(1 - smoothing) * F.logsigmoid(h) - smoothing * F.logsigmoid(-h)


def ipo(pc, pr, rc, rr, beta):
    # Azar et al., equation 17, with tau = beta.
    return ((pc - pr) - (rc - rr) - 1 / (2 * beta)) ** 2


def hinge(pc, pr, rc, rr, beta):
    # Zhao et al., equation 9, on log-ratios.
    return torch.clamp(1 - beta * ((pc - rc) - (pr - rr)), min=0)


def orpo(pc, pr, beta):
    # Hong et al., equations 3 to 7.
    odds = torch.log(pc.exp() / (1 - pc.exp())) - torch.log(pr.exp() / (1 - pr.exp()))
    return -pc - beta * F.logsigmoid(odds)


def simpo(pc, pr, beta, gamma, smoothing=0.0):
    # Meng et al., equation 6; smoothing as in TRL.
    h = beta * (pc - pr) - gamma
    return -(1 - smoothing) * F.logsigmoid(h) - smoothing * F.logsigmoid(-h)


def check(ours, theirs, arrays, constants=()):
    """Compare the mean and its gradients; the reference computes in double."""
    own = [pg.nn.Parameter(a) for a in arrays]
    fixed = [pg.tensor(a) for a in constants]
    loss = ours(*own, *fixed)
    other = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    wanted = theirs(*other, *[torch.tensor(a, dtype=torch.float64) for a in constants]).mean()
    wanted.backward()
    loss.backward()
    np.testing.assert_allclose(loss.item(), wanted.item(), rtol=1e-5, atol=1e-5)
    for mine, its in zip(own, other, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), its.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({}, dpo),
        ({"beta": 0.5, "label_smoothing": 0.2}, lambda *a: dpo(*a, 0.5, 0.2)),
        ({"loss_type": "ipo", "beta": 0.2}, lambda *a: ipo(*a, 0.2)),
        ({"loss_type": "hinge", "beta": 0.05}, lambda *a: hinge(*a, 0.05)),
    ],
)
def test_dpo_equals_the_papers(options, formula):
    arrays = MEANS if options.get("loss_type") == "ipo" else SUMS
    check(lambda *a: dpo_loss(*a, **options), formula, arrays[:2], arrays[2:])


def test_orpo_equals_the_paper():
    check(lambda a, b: orpo_loss(a, b, beta=0.3), lambda a, b: orpo(a, b, 0.3), MEANS[:2])
    # A certain completion has infinite odds; the loss stays finite.
    sure = pg.nn.Parameter(np.zeros(1, np.float32))
    orpo_loss(sure, pg.tensor([-1.0])).backward()
    assert np.isfinite(sure.grad.numpy()).all()


def test_simpo_equals_the_paper():
    check(simpo_loss, lambda a, b: simpo(a, b, 2.0, 0.5), MEANS[:2])
    options = {"beta": 2.5, "simpo_gamma": 1.4, "label_smoothing": 0.1}
    check(lambda a, b: simpo_loss(a, b, **options), lambda a, b: simpo(a, b, 2.5, 1.4, 0.1),
          MEANS[:2])  # fmt: skip


@pytest.mark.parametrize("shift", [3.0, -30.0])
def test_kto_equals_the_paper(shift):
    # Ethayarajh et al., equation 8, whose z0 is clamped and has no gradient.
    labels = np.array([1, 0, 1, 1, 0, 0, 1], np.float32)
    kl = SUMS[2] + np.float32(shift)

    def formula(policy, reference, good, policy_kl, reference_kl):
        z = (policy_kl - reference_kl).mean().clamp(min=0)
        desired = 1.5 * (1 - torch.sigmoid(0.2 * (policy - reference - z)))
        undesired = 0.5 * (1 - torch.sigmoid(0.2 * (z - (policy - reference))))
        return torch.where(good > 0, desired, undesired)

    def ours(*given):
        return kto_loss(*given, beta=0.2, desirable_weight=1.5, undesirable_weight=0.5)

    check(ours, formula, SUMS[:1], [SUMS[1], labels, kl, SUMS[2]])
    moving = pg.nn.Parameter(kl)
    policy = pg.nn.Parameter(SUMS[0])
    ours(policy, pg.tensor(SUMS[1]), pg.tensor(labels), moving, pg.tensor(SUMS[2])).backward()
    assert moving.grad is None or not moving.grad.numpy().any()


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo"])
def test_grpo_equals_the_paper(loss_type):
    rows, length = 4, 5
    logps = RNG.uniform(-3, -0.1, (rows, length)).astype(np.float32)
    old = logps + RNG.normal(0, 0.4, logps.shape).astype(np.float32)
    ref = logps + RNG.normal(0, 0.4, logps.shape).astype(np.float32)
    mask = (np.arange(length) < np.array([[5], [2], [3], [0]])).astype(np.float32)
    advantages = np.array([1.2, -0.7, 0.4, 0.1], np.float32)

    def formula(lp, before, gain, counted, base):
        # Shao et al., equations 3 and 4; Liu et al. for "dr_grpo".
        ratio = torch.exp(lp - before)
        clipped = torch.clamp(ratio, 0.8, 1.3)
        gain = gain[:, None]
        kl = torch.exp(base - lp) - (base - lp) - 1
        each = (-torch.minimum(ratio * gain, clipped * gain) + 0.04 * kl) * counted
        if loss_type == "grpo":
            return (each.sum(1) / counted.sum(1).clamp(min=1)).mean()
        return each.sum() / (counted.sum() if loss_type == "bnpo" else rows * 9)

    def ours(lp, before, gain, counted, base):
        return grpo_loss(
            lp, before, gain, counted, base, beta=0.04, epsilon_high=0.3, loss_type=loss_type,
            max_completion_length=9,
        )  # fmt: skip

    check(ours, formula, [logps], [old, advantages, mask, ref])


def test_advantages_are_those_of_the_group():
    rewards = torch.tensor([1.0, 0.0, 0.0, 2.0, 5.0, 5.0])
    groups = rewards.view(-1, 3)
    wanted = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    np.testing.assert_allclose(group_advantages(rewards, 3), wanted.flatten(), rtol=1e-5)
    plain = group_advantages([1.0, 3.0], 2, scale_rewards=False)
    assert plain.tolist() == [-1.0, 1.0]
    with pytest.raises(ValueError, match="rewards"):
        group_advantages([1.0, 2.0, 3.0], 2)
    with pytest.raises(ValueError, match="finite"):
        group_advantages([1.0, np.nan], 2)


def test_wrong_arguments_raise():
    two, three = pg.tensor([-1.0, -2.0]), pg.tensor([-1.0, -2.0, -3.0])
    with pytest.raises(ShapeError, match="policy_rejected_logps"):
        dpo_loss(two, three, two, two)
    with pytest.raises(ShapeError, match="labels"):
        kto_loss(two, two, three)
    with pytest.raises(ValueError, match="beta"):
        simpo_loss(two, two, beta=0)
    with pytest.raises(ValueError, match="label_smoothing"):
        dpo_loss(two, two, two, two, label_smoothing=0.5)
    with pytest.raises(ValueError, match="label_smoothing"):
        dpo_loss(two, two, two, two, label_smoothing=0.1, loss_type="ipo")
    with pytest.raises(ValueError, match="loss_type"):
        dpo_loss(two, two, two, two, loss_type="other")
    with pytest.raises(ValueError, match="reference_KL_logps"):
        kto_loss(two, two, two, two)
    with pytest.raises(ValueError, match="ref_logps"):
        grpo_loss(pg.zeros((2, 3)), pg.zeros((2, 3)), two, pg.ones((2, 3)), beta=0.1)
