# SPDX-License-Identifier: MIT
"""A parameter whose gradient is None stays as it is, and counts steps of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.optim import SGD, Adafactor, AdamW, AdamW8bit, Lion, Muon, Optimizer, RMSprop

MAKE: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adamw": lambda p: AdamW(p, lr=0.05, weight_decay=0.2),
    "adamw8bit": lambda p: AdamW8bit(p, lr=0.05, min_8bit_size=0),
    "adafactor": lambda p: Adafactor(p, lr=0.05),
    "lion": lambda p: Lion(p, lr=0.01, weight_decay=0.1),
    "muon": lambda p: Muon(p, lr=0.02),
    "rmsprop": lambda p: RMSprop(p, lr=0.01, momentum=0.5, weight_decay=0.1),
}


def layers() -> list[nn.Linear]:
    pg.seed(3)
    return [nn.Linear(32, 32) for _ in range(3)]


def loss(body: nn.Linear, head: nn.Linear, step: int) -> pg.Tensor:
    x = pg.tensor(np.random.default_rng(step).standard_normal((8, 32)).astype(np.float32))
    return ((head(body(x)) - 1.0) ** 2).mean()


def numbers(modules: list[nn.Linear]) -> list[np.ndarray]:
    return [p.numpy() for module in modules for p in module.parameters()]


@pytest.mark.parametrize("name", MAKE)
def test_heads_in_turns_are_trained_as_by_optimizers_of_their_own(name: str) -> None:
    body, *heads = modules = layers()
    optimizer = MAKE[name]([p for m in modules for p in m.parameters()])
    own_body, *own_heads = own = layers()
    each = [MAKE[name](list(m.parameters())) for m in own]
    for step, turn in enumerate((0, 0, 0, 1, 0, 1, 1, 0)):
        loss(body, heads[turn], step).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss(own_body, own_heads[turn], step).backward()
        for one in (each[0], each[1 + turn]):
            one.step()
            one.zero_grad()
        if step == 4:  # a run that goes on
            state = optimizer.state_dict()
            assert sorted(state["skipped"].tolist()) == [0, 0, 1, 1, 4, 4]
            optimizer = MAKE[name]([p for m in modules for p in m.parameters()])
            optimizer.load_state_dict(state)
    for found, wanted in zip(numbers(modules), numbers(own), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", MAKE)
def test_a_layer_that_no_loss_has_used_stays(name: str) -> None:
    body, head, unused = modules = layers()
    before = numbers([unused])
    optimizer = MAKE[name]([p for m in modules for p in m.parameters()])
    for step in range(3):
        loss(body, head, step).backward()
        assert unused.weight.grad is None
        optimizer.step(clip=1.0)
        optimizer.zero_grad()
        assert body.weight.grad is None
    for found, wanted in zip(numbers([unused]), before, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_zeros_are_a_gradient() -> None:
    w = nn.Parameter(np.ones(4, np.float32))
    optimizer = SGD([w], lr=0.1, weight_decay=1.0)
    (w * 0.0).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(w.numpy(), 0.9, rtol=1e-6)
    optimizer.zero_grad()
    optimizer.step()  # None: nothing happens
    np.testing.assert_allclose(w.numpy(), 0.9, rtol=1e-6)
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    np.testing.assert_allclose(w.numpy(), 0.81, rtol=1e-6)
    w.grad = None
    optimizer.step()
    np.testing.assert_allclose(w.numpy(), 0.81, rtol=1e-6)


def test_hooks_of_a_parameter_without_gradient_are_not_run() -> None:
    used, unused = (nn.Parameter(np.ones(2, np.float32)) for _ in range(2))
    seen: list[str] = []
    used.register_hook(lambda g: seen.append("used"))
    unused.register_hook(lambda g: seen.append("unused"))
    optimizer = SGD([used, unused], lr=0.1)
    used.sum().backward()
    optimizer.step()
    assert set(seen) == {"used"}


def test_few_graphs_are_kept_for_many_sets_of_parameters() -> None:
    params = [nn.Parameter(np.ones(2, np.float32)) for _ in range(40)]
    optimizer = AdamW(params, lr=0.1)
    for param in params:
        (param * 2.0).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(optimizer._updates) <= 16
    # Each had its first step, of the learning rate and of the weight decay.
    for param in params:
        np.testing.assert_allclose(param.numpy(), (1 - 0.1 * 0.01) - 0.1, rtol=1e-5)


@pytest.mark.parametrize(
    ("skipped", "match"),
    [
        (np.zeros(3, np.int64), "a whole number for each of 1 parameters"),
        (np.zeros(1), "got float64"),
        (np.array([5]), "must be from 0 to 1"),
    ],
)
def test_bad_counts_are_refused(skipped: np.ndarray, match: str) -> None:
    w = nn.Parameter(np.ones(2, np.float32))
    optimizer = AdamW([w], lr=0.1)
    w.sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match=match):
        optimizer.load_state_dict({**optimizer.state_dict(), "skipped": skipped})
    assert optimizer.steps == 1
