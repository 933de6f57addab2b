# SPDX-License-Identifier: MIT
"""PyTorch's calls give PyTorch's numbers and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.nn import functional

from .calls import ALIKE

torch = pytest.importorskip("torch")
SHAPES = {
    "x": (2, 3, 4), "y": (2, 3, 4), "p": (2, 3, 4), "m": (3, 4), "n": (4, 5), "v": (4,), "u": (3,),
    "b": (2, 4, 5), "images": (2, 3, 6, 6), "filters": (3, 3, 3, 3), "kernel": (3, 3, 2),
    "heads": (2, 2, 5, 4),
}  # fmt: skip
WHOLE = {"ids": np.array([1, 0, 2]), "places": np.array([[[0, 3]] * 3] * 2)}
# Exact in PyTorch's own f32 comparison of x with itself, so the numbers are apart from whole ones.
RNG = np.random.default_rng(4)
NUMBERS = {
    name: RNG.uniform(0.3, 2.5, shape) * (1 if name == "p" else RNG.choice([-1, 1], shape))
    for name, shape in SHAPES.items()
}


@pytest.mark.parametrize("call", ALIKE)
def test_the_same_call_gives_the_same(call: str) -> None:
    ours: dict[str, Any] = {k: pg.tensor(v, "f32", requires_grad=True) for k, v in NUMBERS.items()}
    theirs: dict[str, Any] = {
        k: torch.tensor(v.astype(np.float32).astype(np.float64), requires_grad=True)
        for k, v in NUMBERS.items()
    }
    whole_ours = {k: pg.tensor(v.astype(np.int32)) for k, v in WHOLE.items()}
    whole_theirs = {k: torch.tensor(v) for k, v in WHOLE.items()}
    got = eval(call, {"T": pg, "F": functional, **ours, **whole_ours})
    want = eval(call, {"T": torch, "F": torch.nn.functional, **theirs, **whole_theirs})
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=2e-5, atol=2e-6)
    if not want.requires_grad:
        return
    weights = np.random.default_rng(5).uniform(0.5, 1.5, got.shape)
    (got * pg.tensor(weights, "f32")).sum().backward()
    (want * torch.tensor(weights.astype(np.float32).astype(np.float64))).sum().backward()
    for name, leaf in theirs.items():
        if leaf.grad is not None:
            assert ours[name].grad is not None, name
            np.testing.assert_allclose(
                ours[name].grad.numpy(), leaf.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name
            )


def test_there_are_many() -> None:
    assert len(ALIKE) == len(set(ALIKE)) >= 240
