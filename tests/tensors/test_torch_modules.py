# SPDX-License-Identifier: MIT
"""PyTorch's layers, methods of modules and optimizers give PyTorch's numbers and gradients."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim

from .calls import MODULES, OF_MODULES, STEPS
from .test_torch_calls import NUMBERS, WHOLE

torch = pytest.importorskip("torch")
MODEL = "nn.Sequential(nn.Linear(4,8),nn.ReLU(),nn.Linear(8,2))"


def both(call: str) -> tuple[Any, Any]:
    """Return the layer of pyggml and of PyTorch, with the same weights, all of them drawn."""
    names = {"OrderedDict": OrderedDict}
    ours, theirs = eval(call, {"nn": nn, **names}), eval(call, {"nn": torch.nn, **names}).double()
    rng = np.random.default_rng(6)
    state = {name: rng.uniform(0.2, 0.8, a.shape) for name, a in ours.state_dict().items()}
    state = {name: array.astype(np.float32) for name, array in state.items()}
    ours.load_state_dict(state)
    tensors = {name: torch.tensor(array.astype(np.float64)) for name, array in state.items()}
    missing = theirs.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys)
    return ours, theirs


def close(got: Any, want: Any, what: str = "", rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(
        got.numpy(), want.detach().numpy(), rtol=rtol, atol=1e-5, err_msg=what
    )


@pytest.mark.parametrize(("call", "given"), MODULES)
def test_a_layer_gives_the_same(call: str, given: str) -> None:
    ours, theirs = both(call)
    mine: dict[str, Any] = {k: pg.tensor(v, "f32", requires_grad=True) for k, v in NUMBERS.items()}
    its: dict[str, Any] = {
        k: torch.tensor(v.astype(np.float32).astype(np.float64), requires_grad=True)
        for k, v in NUMBERS.items()
    }
    whole = {k: pg.tensor(v.astype(np.int32)) for k, v in WHOLE.items()}
    got = eval(f"layer({given})", {"layer": ours, **mine, **whole})
    whole = {k: torch.tensor(v) for k, v in WHOLE.items()}
    want = eval(f"layer({given})", {"layer": theirs, **its, **whole})
    assert got.shape == tuple(want.shape)
    weights = np.random.default_rng(5).uniform(0.5, 1.5, got.shape).astype(np.float32)
    (got * pg.tensor(weights)).sum().backward()
    (want * torch.tensor(weights.astype(np.float64))).sum().backward()
    close(got, want)
    for name, parameter in theirs.named_parameters():
        close(dict(ours.named_parameters())[name].grad, parameter.grad, name)
    for name, leaf in its.items():
        if leaf.grad is not None and not (call.startswith("nn.Embedding") or name == "p"):
            close(mine[name].grad, leaf.grad, name)


@pytest.mark.parametrize("call", OF_MODULES)
def test_a_method_of_a_module_gives_the_same(call: str) -> None:
    ours, theirs = both(MODEL)
    assert eval(call, {"model": ours}) == eval(call, {"model": theirs})


@pytest.mark.parametrize("call", STEPS)
def test_an_optimizer_steps_alike(call: str) -> None:
    ours, theirs = both(MODEL)
    mine = eval(call, {"optim": optim, "model": ours})
    its = eval(call, {"optim": torch.optim, "model": theirs})
    x = NUMBERS["x"].astype(np.float32)
    for _ in range(3):
        mine.zero_grad()
        its.zero_grad()
        (ours(pg.tensor(x)) ** 2).mean().backward()
        (theirs(torch.tensor(x.astype(np.float64))) ** 2).mean().backward()
        mine.step()
        its.step()
    for name, parameter in theirs.named_parameters():
        close(dict(ours.named_parameters())[name], parameter, name, 1e-3)


def test_there_are_many() -> None:
    assert len(MODULES) == len(set(MODULES)) >= 40
    assert len(OF_MODULES) >= 15
    assert len(STEPS) >= 8
