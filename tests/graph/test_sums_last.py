# SPDX-License-Identifier: MIT
"""Sums that are added to stored gradients do not stand between the ops of a norm's gradient."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.backend.headers import op_name
from pyggml.backend.library import ffi, lib
from pyggml.graph import graph as graphs
from pyggml.graph.passes import leaves


def numbers(*shape: int, seed: int) -> pg.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return pg.tensor(values.astype(np.float32), requires_grad=True)


def accumulated(shared: bool = False) -> tuple[list[str], list[object]]:
    """The ops of two norms with a residual and their backward, and accumulated gradients."""
    w, v = numbers(24, 24, seed=1), numbers(24, 24, seed=2)
    gains, biases = ([numbers(24, seed=s) for s in (s0, s0 + 1)] for s0 in (3, 5))
    if shared:
        gains[1], biases[1] = gains[0], biases[0]
    x = ops.linear(numbers(40, 24, seed=7), w)
    for gain, bias in zip(gains, biases, strict=True):
        x = x + ops.linear(pg.nn.functional.layer_norm(x, (24,), gain, bias), v)
    loss = x.square().sum()
    parameters = list(dict.fromkeys([w, v, *gains, *biases]))
    grads = {p: pg.tensor(np.full(p.shape, 0.5, np.float32)) for p in parameters}
    graph = pg.Graph([loss], loss=loss, grads=grads)
    graph.run()
    names = [
        "total" if h.op == lib.GGML_OP_ADD and h.view_src != ffi.NULL else op_name(h)
        for h in graph.headers
        if h.op not in (lib.GGML_OP_NONE, lib.GGML_OP_RESHAPE)
    ]
    return names, [g.tolist() for g in grads.values()]


@pytest.mark.parametrize("shared", [False, True])
def test_ops_of_a_norm_are_neighbours_and_gradients_the_same(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    names, grads = accumulated(shared)
    chain = ["REPEAT_BACK", "MUL", "MUL", "REPEAT_BACK", "NORM_BACK", "ADD", "total", "total"]
    found = [names[i : i + len(chain)] for i, name in enumerate(names) if name == "REPEAT_BACK"]
    assert found.count(chain) == 2
    without = tuple(each for each in graphs.PASSES if each is not leaves.sums_last)
    monkeypatch.setattr(graphs, "PASSES", without)
    others, expected = accumulated(shared)
    assert sorted(others) == sorted(names)
    assert others != names
    assert grads == expected
