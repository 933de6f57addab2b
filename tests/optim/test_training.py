# SPDX-License-Identifier: MIT
"""Every optimizer through a training step of a model, and what every one of them refuses."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.io import load_safetensors, save_safetensors
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import muon_groups, param_groups
from pyggml.train import TrainStep

from .cases import CASES, PLAIN


def batch(seed):
    ids = np.random.default_rng(seed).integers(0, 32, (2, 17)).astype(np.int32)
    return ids[:, :-1], ids[:, 1:]


def train(case, steps, state=None, fused=False):
    """A model, its optimizer and the losses after steps; `state` is where an earlier run ended."""
    pg.seed(0)
    model = GPT2(GPT2Config(32, context=16, n_embd=32, n_layer=2, n_head=2))
    groups = muon_groups if case.kind is optim.Muon else param_groups
    optimizer = case.kind(groups(model, 0.1), **{"lr": 1e-2, **case.options}, fused_update=fused)
    if state is not None:
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
    step = TrainStep(model, optimizer, clip=None if fused else 0.5)
    losses = [step([batch(i)], lr=1e-2 / (i + 1)).loss for i in steps]
    return losses, (model.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("name", PLAIN)
def test_an_interrupted_run_ends_with_the_same_bits(name, tmp_path):
    case = PLAIN[name]
    losses, (weights, state) = train(case, range(6))
    _, (half, half_state) = train(case, range(3))
    save_safetensors(tmp_path / "optimizer.safetensors", half_state)
    saved = load_safetensors(tmp_path / "optimizer.safetensors")
    rest, (other, other_state) = train(case, range(3, 6), (half, saved))
    assert rest == losses[3:]
    for got, want in ((other, weights), (other_state, state)):
        assert got.keys() == want.keys()
        for key, value in want.items():
            np.testing.assert_array_equal(got[key], value)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.fuses])
def test_updates_in_the_backward_of_a_model_give_the_same_bits(name):
    case = CASES[name]

    def run(fused):
        pg.seed(0)
        model = GPT2(GPT2Config(32, context=16, n_embd=32, n_layer=2, n_head=2))
        groups = muon_groups if case.kind is optim.Muon else param_groups
        optimizer = case.kind(
            groups(model, 0.1), **{"lr": 1e-2, **case.options}, fused_update=fused
        )
        step = TrainStep(model, optimizer)
        results = [step([batch(i)]) for i in range(3)]
        return [r.loss for r in results], {**model.state_dict(), **optimizer.state_dict()}

    (losses, kept), (others, fused) = run(False), run(True)
    assert losses == others
    for key, value in kept.items():
        np.testing.assert_array_equal(value, fused[key], err_msg=key)


def numbers():
    """Every optimizer's options that are numbers or tuples of numbers."""
    for kind in optim.optimizers().values():
        for p in inspect.signature(kind).parameters.values():
            if p.name == "params" or p.annotation in ("bool", "str"):
                continue
            if isinstance(p.default, tuple):
                for i in range(len(p.default)):
                    yield kind, p, i
            elif p.default is None or isinstance(p.default, (int, float)):
                yield kind, p, None


# What is a number all the same, or means something of its own.
ALLOWED = {("beta2_decay", -1.0), ("ns_coefficients", -1.0), ("ns_coefficients", 1e39)}


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39, -1.0, None, "x", [1.0]])
def test_every_wrong_hyperparameter_is_refused(value):
    count = 0
    for kind, p, i in numbers():
        if isinstance(value, float) and (p.name, value) in ALLOWED:
            continue
        # None is a default of some; of Adafactor's eps it is f32's own.
        if value is None and (p.default is None or p.default == (None, 1e-3)):
            continue
        given = value
        if i is not None:
            given = tuple(value if j == i else x for j, x in enumerate(p.default))
        try:
            kind([nn.Parameter([[1.0, 2.0]])], **{p.name: given})
        except (ValueError, TypeError):
            count += 1
        else:
            pytest.fail(f"{kind.__name__} took {p.name}={given!r}")
    assert count > 40


@pytest.mark.parametrize("name", CASES)
def test_hyperparameters_at_the_edge_are_taken(name):
    """A zero where it means something: no momentum, no decay, no rate."""
    case = CASES[name]
    w = nn.Parameter([[1.0, 2.0], [3.0, 4.0]])
    optimizer = case.kind([w], **{**case.options, "lr": 0.0, "weight_decay": 0.0})
    optimizer.grads[w].copy_(np.ones((2, 2)))
    optimizer.step(lambda: 1.0) if case.closure else optimizer.step(clip=1.0)
    np.testing.assert_array_equal(w.numpy(), [[1.0, 2.0], [3.0, 4.0]])
