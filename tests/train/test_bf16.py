# SPDX-License-Identifier: MIT
"""Accumulation in bf16: which products round does not depend on a step's division, unless tiny."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml.models import build
from pyggml.optim import SGD
from pyggml.train import TrainStep

needs_bf16 = pytest.mark.skipif(not pg.bf16_matmuls(), reason="this CPU multiplies no bf16")


def gradients(parts, rows=8, length=32, width=32):
    """Of one step whose rows are divided into so many batches."""
    pg.seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 64, (2, rows, length)).astype(np.int32)
    model = build(
        "gpt2", {"n_layer": 2, "n_head": 2, "n_embd": width, "context": length}, vocab_size=64
    )
    step = TrainStep(model, SGD(model.parameters(), lr=0.0), precision="bf16")
    step(list(zip(np.split(x, parts), np.split(y, parts), strict=True)))
    return {name: p.grad.numpy() for name, p in model.named_parameters()}


def difference(parts, **sizes):
    """The largest of an element's, as a share of its gradient's largest."""
    whole, divided = gradients(1, **sizes), gradients(parts, **sizes)
    return max(np.abs(divided[n] - g).max() / np.abs(g).max() for n, g in whole.items())


@needs_bf16
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_the_same_operands_are_rounded_however_a_step_is_divided(parts):
    """Each product of the smallest batch is large enough for the packed one: only sums differ."""
    assert difference(parts) < 1e-6


@needs_bf16
def test_products_below_the_packed_one_s_least_size_are_not_rounded():
    """docs/guide/performance.md gives the reason; if this fails, that paragraph can go."""
    assert 1e-4 < difference(8, length=8, width=16) < 2e-2
