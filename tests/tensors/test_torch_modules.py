# SPDX-License-Identifier: MIT
"""PyTorch's layers, methods of modules and optimizers give PyTorch's numbers and gradients."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim

from .calls import MODULES, OF_MODULES, STEPS
from .theirs import MODEL, NUMBERS, TRUTH, WHOLE, first, known, read, same_weights, weights_of


def made(call: str) -> Any:
    """Return a layer with the weights that PyTorch's layer had."""
    layer = eval(call, {"nn": nn, "OrderedDict": OrderedDict})
    layer.load_state_dict(same_weights(layer))
    return layer


def close(got: Any, want: np.ndarray, what: str = "", rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=1e-5, err_msg=what)


@pytest.mark.parametrize(("call", "given"), MODULES)
def test_a_layer_gives_the_same(call: str, given: str) -> None:
    layer = made(call)
    mine: dict[str, Any] = {k: pg.tensor(v, "f32", requires_grad=True) for k, v in NUMBERS.items()}
    whole = {k: pg.tensor(v) for k, v in (WHOLE | TRUTH).items()}
    got = first(eval(f"layer({given})", {"layer": layer, **mine, **whole}))
    want = dict(known("layer", f"{call} {given}"))
    value = want.pop("value")
    assert got.shape == value.shape
    (got * pg.tensor(weights_of(got.shape))).sum().backward()
    close(got, value)
    parameters = dict(layer.named_parameters())
    assert set(parameters) <= set(want)
    for name, grad in want.items():
        close((parameters.get(name) if name in parameters else mine[name]).grad, grad, name)


@pytest.mark.parametrize("call", OF_MODULES)
def test_a_method_of_a_module_gives_the_same(call: str) -> None:
    got = eval(call, {"model": made(MODEL)})
    assert json.loads(json.dumps(got)) == read()[1][call]


@pytest.mark.parametrize("call", STEPS)
def test_an_optimizer_steps_alike(call: str) -> None:
    model = made(MODEL)
    optimizer = eval(call, {"optim": optim, "model": model})
    x = NUMBERS["x"].astype(np.float32)
    for _ in range(3):
        optimizer.zero_grad()
        (model(pg.tensor(x)) ** 2).mean().backward()
        optimizer.step()
    for name, weight in known("steps", call).items():
        close(dict(model.named_parameters())[name], weight, name, 1e-3)
