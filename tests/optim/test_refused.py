# SPDX-License-Identifier: MIT
"""Loads and steps that fail change nothing of an optimizer, of averages or of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import AnomalyError
from pyggml.optim import EMA, LBFGS, AdamW
from pyggml.train import quantization_aware


def _rounded(model: Any) -> Any:
    optimizer = AdamW(model, lr=0.1)
    quantization_aware(model, optimizer, "q8_0")
    return optimizer


@pytest.mark.parametrize(
    ("make", "held"),
    [
        (lambda m: AdamW(m, lr=0.1), "1.weight.v"),
        (lambda m: LBFGS(m, lr=0.1), "history.gradient"),
        (lambda m: EMA(m, warmup=False), "1.weight"),
        (_rounded, "1.weight.v"),
        (_rounded, ""),
    ],
    ids=["adamw", "lbfgs", "ema", "rounded", "rounded weights"],
)
def test_a_load_that_fails_in_the_middle_changes_nothing(make: Any, held: str) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    owner = make(model)
    before, weights = owner.state_dict(), model.state_dict()
    states = owner.averages if isinstance(owner, EMA) else owner.named_state()
    read = states[held] if held else model[1].weight
    kept = pg.ops.log(read * 0.0 - 1.0)
    others = [name for name, array in before.items() if array.dtype == np.float32]
    other = {**before, **{name: before[name] + 1 for name in ("steps", *others)}}
    with pg.detect_anomaly(), pytest.raises(AnomalyError):
        owner.load_state_dict(other)
    for now, then in ((owner.state_dict(), before), (model.state_dict(), weights)):
        for name, array in now.items():
            np.testing.assert_array_equal(array, then[name], name)
    owner.load_state_dict(other)
    assert np.isnan(kept.numpy()).all()
    assert owner.state_dict()["steps"] == before["steps"] + 1


def test_rounded_weights_that_cannot_be_lent_stay_rounded() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    optimizer = _rounded(model)
    (model(pg.ones((1, 32))) ** 2).sum().backward()
    weights, kept = model.state_dict(), pg.ops.log(model[1].weight * 0.0 - 1.0)
    with pg.detect_anomaly(), pytest.raises(AnomalyError):
        optimizer.step()
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, weights[name], name)
    assert optimizer.steps == 0
    del kept


def test_a_refused_step_of_lbfgs_changes_nothing() -> None:
    w = nn.Parameter([1.0, 2.0])
    optimizer = LBFGS([w], lr=0.1)

    def closure() -> pg.Tensor:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    before, values, kept = optimizer.state_dict(), w.tolist(), pg.ops.log(w * 0.0 - 1.0)
    with pg.detect_anomaly(), pytest.raises(AnomalyError):
        optimizer.step(closure)
    for name, array in optimizer.state_dict().items():
        np.testing.assert_array_equal(array, before[name], name)
    assert w.tolist() == values
    del kept
