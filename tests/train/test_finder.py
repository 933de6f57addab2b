# SPDX-License-Identifier: MIT
from __future__ import annotations

import re

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Prefetch
from pyggml.nn import Module, Parameter
from pyggml.optim import SGD, AdamW
from pyggml.train import GradScaler, TrainStep, find_lr
from pyggml.train.finder import _choose as choose

from .test_step import batch
from .tiny import make_model, make_trainer, same


class Bowl(Module):
    """Half the square of one number for each token: SGD diverges above the rate 2."""

    def __init__(self):
        self.x = Parameter([4.0])


def bowl_loss(model, ids, targets):
    return (model.x * model.x).sum() * 0.5


def ones():
    while True:
        yield np.ones((2, 3), np.int32), np.ones((2, 3), np.int32)


def test_the_rate_of_a_bowl():
    """x falls by the factor |1 - rate|: fastest near 1, never above 2."""
    model = Bowl()
    optimizer = SGD(model.parameters(), lr=0.25)
    step = TrainStep(model, optimizer, loss=bowl_loss)
    found = find_lr(model, optimizer, ones(), start=1e-4, end=100.0, steps=60, step=step)
    assert 0.02 < found.suggested < 2.0
    assert found.suggested < found.lowest
    assert found.rates[-1] < 100.0  # it ended when the loss diverged
    assert len(found.rates) == len(found.losses) == len(found.smoothed)
    assert found.losses[0] == 8.0
    assert model.x.tolist() == [4.0]
    assert optimizer.lr == 0.25


@pytest.mark.parametrize("fused", [False, True])
def test_everything_is_put_back(fused):
    trainer = make_trainer()
    model = trainer.model
    optimizer = AdamW(model.parameters(), lr=0.1, fused_update=fused)
    TrainStep(model, optimizer)([batch(4)])
    weights, state = model.state_dict(), optimizer.state_dict()
    generator = pg.random_generator().bit_generator.state
    found = find_lr(model, optimizer, iter(trainer.loader), start=1e-3, end=1.0, steps=8)
    assert len(found.rates) <= 8
    assert same(model.state_dict(), weights)
    assert same(optimizer.state_dict(), state)
    assert pg.random_generator().bit_generator.state == generator
    if not fused:
        assert optimizer.grad_norm() == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 4}, "steps must be"),
        ({"start": 0.0}, "start must be"),
        ({"start": 2.0, "end": 1.0}, "end must be"),
        ({"steps": 9}, "needs 9 batches; got 7"),
    ],
)
def test_bad_arguments(options, words):
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    weights = model.state_dict()
    with pytest.raises(ValueError, match=re.escape(words)):
        find_lr(model, optimizer, [batch(2)] * 7, **options)
    assert same(model.state_dict(), weights)


def test_a_loss_that_diverges_at_once():
    model = Bowl()
    optimizer = SGD(model.parameters(), lr=0.25)
    step = TrainStep(model, optimizer, loss=bowl_loss)
    with pytest.raises(ValueError, match="diverged after 2 steps, at the rate"):
        find_lr(model, optimizer, ones(), start=1e3, end=1e6, steps=60, step=step)
    assert model.x.tolist() == [4.0]


RATES = np.geomspace(1e-6, 10.0, 100).tolist()


def falls(at, seed, spread=0.1):
    """Losses from 5 to 3, falling fastest at a rate, that diverge above a hundred times it."""
    rates = np.array(RATES)
    curve = (
        5 - 2 / (1 + (at / rates) ** 1.5) + spread * np.random.default_rng(seed).normal(size=100)
    )
    return np.where(rates > 100 * at, 50.0 * rates / at, curve).tolist()


@pytest.mark.parametrize("at", [1e-4, 1e-2])
def test_batches_do_not_decide(at):
    """The suggestion is near the steepest fall, whatever the batches."""
    found = [choose(RATES, falls(at, seed)) for seed in range(20)]
    assert all(at / 4 < each.suggested < 4 * at for each in found)
    assert all(each.suggested < each.lowest < 110 * at for each in found)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (5 + 0.1 * np.random.default_rng(0).normal(size=100), "the suggestion is a guess"),
        (np.full(100, 5.0), "the suggestion is a guess"),
        (5 - np.exp(np.arange(100) / 20 - 5), "still falls at the highest rate tried: end higher"),
        (3 + np.exp(-np.arange(100) / 10), "falls fastest at the lowest rate tried: begin lower"),
    ],
)
def test_what_a_curve_does_not_tell_is_warned_of(caplog, losses, words):
    choose(RATES, losses.tolist())
    (record,) = caplog.records
    assert words in record.getMessage()


def test_a_clear_curve_is_not_warned_of(caplog):
    choose(RATES, falls(1e-3, 0))
    assert not caplog.records


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_step_of_one_s_own_has_is_put_back_too(fails):
    """The loss scaling, the loader and its epoch; also when the test does not come to its end."""
    trainer = make_trainer(precision="f16", ema=0.9)
    model, optimizer, loader = trainer.model, trainer.optimizer, trainer.loader
    scaler = GradScaler(2.0**66, growth_interval=1)
    step = TrainStep(model, optimizer, precision="f16", scaler=scaler)
    for _ in range(3):
        step([next(loader)])
    parts = (scaler, loader, trainer.ema, optimizer, model)
    before = [part.state_dict() for part in parts]
    options = {"start": 1e-4, "end": 1.0, "steps": 8, "step": step}
    if fails:
        with pytest.raises(ValueError, match="diverged"):
            find_lr(model, optimizer, loader, **{**options, "start": 1e20, "end": 1e30})
    else:
        find_lr(model, optimizer, loader, **options)
    after = [part.state_dict() for part in parts]
    assert after[:2] == before[:2]
    for now, was in zip(after[2:], before[2:], strict=True):
        assert same(now, was)
    assert step.runs == 3


def test_a_prefetched_loader_is_moved_back():
    trainer = make_trainer()
    with Prefetch(trainer.loader) as loader:
        next(loader)
        before = loader.state_dict()
        first = find_lr(trainer.model, trainer.optimizer, loader, start=1e-4, end=0.1, steps=6)
        assert loader.state_dict() == before
        again = find_lr(trainer.model, trainer.optimizer, loader, start=1e-4, end=0.1, steps=6)
    assert first == again


def test_a_step_of_another_model_is_refused():
    one, other = make_model(), make_model()
    optimizers = [SGD(model.parameters(), lr=0.1) for model in (one, other)]
    step = TrainStep(other, optimizers[1])
    with pytest.raises(ValueError, match="step "):
        find_lr(one, optimizers[0], [batch(2)] * 9, steps=5, step=step)
