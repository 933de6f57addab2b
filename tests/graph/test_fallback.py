# SPDX-License-Identifier: MIT
"""What a device leaves to the CPU is told; what the CPU cannot take over is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops, optim
from pyggml.data import RandomWindows
from pyggml.errors import BackendError
from pyggml.graph.passes.fallback import fallbacks
from pyggml.models import GPT2, GPT2Config
from pyggml.train import Trainer, step_fallbacks
from pyggml.train.fallbacks import tell_fallbacks


class Refusing:
    """A device that lacks some ops."""

    name = "cuda:0"

    def __init__(self, *lacks: str) -> None:
        self.lacks = lacks

    def supports(self, node: Any) -> bool:
        return pg.ffi.string(pg.lib.ggml_op_desc(node)).decode() not in self.lacks


def headers(*outputs: pg.Tensor) -> list[Any]:
    """Of recorded ops, operands first."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        for source in node.srcs:
            visit(source)
        if node.buffer is None:
            found.append(node.ptr)

    for each in outputs:
        visit(each.node)
    return found


X = pg.ones((2, 4))


def test_what_the_cpu_computes_is_counted():
    nodes = headers(ops.gelu(ops.gelu(X) + X).reshape(4, 2).sum())
    assert fallbacks(nodes, Refusing("GELU", "SUM", "RESHAPE")) == {"GELU": 2, "SUM": 1}
    assert fallbacks(nodes, Refusing()) == {}


def test_writing_into_stored_memory_is_refused():
    rows = pg.tensor([1], dtype="i32")
    nodes = headers(ops.set_rows(pg.zeros((2, 4)), pg.ones((1, 4)), rows))
    with pytest.raises(BackendError, match=r"SET_ROWS of .*, and the CPU cannot write"):
        fallbacks(nodes, Refusing("SET_ROWS"))
    assert fallbacks(nodes, Refusing("GELU")) == {}


def test_the_cpu_leaves_nothing():
    graph = pg.Graph([ops.gelu(X).sum()])
    assert graph.fallbacks == {}
    assert set(step_fallbacks("cpu")) >= {"gpt2", "llama", "bert-mlm", "t5", "cnn", "resnet"}
    assert not any(step_fallbacks("cpu").values())


@pytest.mark.parametrize("fused", [False, True])
def test_a_plan_tells(fused, monkeypatch):
    """The step's graph and the optimizer's, each op as often as in the graph with the most."""
    model = GPT2(GPT2Config(vocab_size=17, context=8, n_embd=8, n_layer=2, n_head=2))
    optimizer = optim.AdamW(model.parameters(), fused_update=fused)
    windows = RandomWindows(np.ones(64, np.int32), 8)
    lacks = Refusing("GELU_BACK", "OPT_STEP_ADAMW")
    # As a GPU would be: what it lacks has to be written elsewhere.
    monkeypatch.setattr("pyggml.graph.passes.fallback._is_held", lambda node: False)
    monkeypatch.setattr(
        "pyggml.graph.passes.fallback.fallbacks", lambda nodes, _: fallbacks(nodes, lacks)
    )
    trainer = Trainer(model, windows, None, optimizer, batch_size=2, steps=1, clip=0.0)
    updates = len(model.parameters())
    assert trainer.plan().fallbacks == {"OPT_STEP_ADAMW": updates, "GELU_BACK": 2}


def test_words():
    assert tell_fallbacks({}) == "none"
    assert tell_fallbacks({"A": 3, "B": 1}) == "3 A, 1 B"
