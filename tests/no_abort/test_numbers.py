# SPDX-License-Identifier: MIT
"""NaN, infinity and hyper-parameters out of range end in a result or an exception."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, ops, optim
from pyggml.nn import activations

BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_take_what_is_not_finite(bad: float, reduction: str) -> None:
    logits = np.zeros((3, 4), np.float32)
    logits[1, 2] = bad
    x = pg.tensor(logits, requires_grad=True)
    loss = ops.cross_entropy(x, pg.tensor([0, 1, 3]), reduction=reduction)
    values = np.atleast_1d(loss.numpy())
    assert np.isnan(values).any() or np.isinf(values).any() or bad == -np.inf
    if reduction == "none":
        assert np.isfinite(values[[0, 2]]).all()
        loss = loss.sum()
    loss.backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()[[0, 2]]).all()


ARGUMENTS = {"Threshold": (0.1, 0.5), "Softmax": (-1,), "LogSoftmax": (-1,)}


@pytest.mark.parametrize("name", activations.__all__)
def test_activations_keep_what_is_not_a_number(name: str) -> None:
    layer = getattr(activations, name)(*ARGUMENTS.get(name, ()))
    numbers = np.linspace(-1.5, 1.5, 8, dtype=np.float32)
    for at in range(8):  # below, between and above the thresholds
        bad = numbers.copy()
        bad[at] = np.nan
        x = pg.tensor(bad[None], requires_grad=True)
        y = layer(x)
        assert np.isnan(y.numpy()).any(), at
        (y * y).sum().backward()
        assert x.grad is not None
        assert np.isnan(x.grad.numpy()[0, at]), at


@pytest.mark.parametrize("target", [-1, 4, 2**31 - 1, -(2**31)])
def test_a_class_that_is_none_makes_nan(target: int) -> None:
    x = pg.tensor(np.zeros((2, 4), np.float32), requires_grad=True)
    loss = ops.cross_entropy(x, pg.tensor(np.array([1, target], np.int32)))
    assert np.isnan(loss.item())
    loss.backward()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_optimizers_refuse_gradients_that_are_not_finite(
    bad: float, kind: type[optim.Optimizer], clip: float | None
) -> None:
    w = nn.Parameter([1.0, 2.0])
    optimizer = kind([w])
    (w * pg.tensor([1.0, bad])).sum().backward()
    with pytest.raises(FloatingPointError, match="no parameter was changed"):
        optimizer.step(clip=clip)
    assert w.tolist() == [1.0, 2.0]
    assert optimizer.steps == 0


@pytest.mark.parametrize("bad", BAD)
def test_the_norm_of_what_is_not_finite(bad: float) -> None:
    assert not np.isfinite(optim.GradNorm([pg.tensor([1.0, bad])])())


@pytest.mark.parametrize("value", [*BAD, 1e39, -1.0, None, "x", [1.0]])
def test_optimizers_refuse_hyperparameters(value: Any) -> None:
    w = nn.Parameter([1.0])
    wrong = (ValueError, TypeError)
    for make in [
        lambda: optim.SGD([w], lr=value),
        lambda: optim.SGD([w], weight_decay=value),
        lambda: optim.AdamW([w], betas=(value, 0.9)),
        lambda: optim.AdamW([w], betas=(0.9, value)),
        lambda: optim.AdamW([w], eps=value),
    ]:
        with pytest.raises(wrong):
            make()
    optimizer = optim.SGD([w])
    if value is not None:
        with pytest.raises(wrong):
            optimizer.step(lr=value)
    if value is not None and value not in (np.inf, 1e39):
        with pytest.raises(wrong):
            optimizer.step(clip=value)
