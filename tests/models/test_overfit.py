# SPDX-License-Identifier: MIT
"""Each model drives the loss of one batch near zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Batch
from pyggml.models import MODELS, build
from pyggml.optim import AdamW
from pyggml.train import TrainStep

V, B, T = 41, 4, 12
RNG = np.random.default_rng(1)
TEXT = RNG.integers(2, V, (B, T + 1)).astype(np.int32)
MASK = np.ones((B, T), np.int32)
MASK[1, 8:] = 0
HIDDEN = np.where(RNG.random((B, T)) < 0.3, TEXT[:, 1:], -100).astype(np.int32)
READ, WRITTEN = TEXT[:, :T], TEXT[:, 5:11]
IMAGES = RNG.standard_normal((16, 3, 8, 8)).astype(np.float32)
CLASSES = RNG.integers(0, 10, 16).astype(np.int32)


def sentences(model: Any, x: Any, y: Any, attention_mask: Any) -> Any:
    """Each sentence is to be close to the sum of its words' own directions in `y`."""
    return pg.nn.functional.cosine_embedding_loss(model.embed(x, attention_mask), y, pg.ones((B,)))


LM = {"vocab_size": V, "context": 16}
MODERN = {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "window": 6}
# Architecture, sizes, batch, loss, learning rate, steps.
ROWS: dict[str, tuple[str, dict, Any, Any, float, int]] = {
    **{
        name: (arch, {**LM, **sizes}, (TEXT[:, :-1], TEXT[:, 1:]), None, 1e-2, 80)
        for name, arch, sizes in [
            ("gpt2", "gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
            ("llama", "llama", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_kv_head": 2}),
            ("llm", "llm", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_ffn": 64}),
            (
                "mixtral",
                "llama",
                {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_expert": 4, "router_aux": 0.001},
            ),
            ("gemma", "llama", {"family": "gemma", "n_embd": 32, "n_layer": 2, "n_head": 4}),
            ("qwen3", "llama", {"family": "qwen3", "n_embd": 32, "n_layer": 2, "n_head": 4}),
        ]
    },
    "bert": (
        "bert",
        {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "dropout": 0.0},
        Batch(READ, RNG.standard_normal((B, 32)).astype(np.float32), attention_mask=MASK),
        sentences,
        3e-3,
        120,
    ),
    "bert-mlm": (
        "bert-mlm",
        {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "dropout": 0.0},
        Batch(READ, HIDDEN, attention_mask=MASK),
        None,
        5e-3,
        120,
    ),
    "bert-classifier": (
        "bert-classifier",
        {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "dropout": 0.0, "classes": 3},
        Batch(READ, np.array([0, 1, 2, 1], np.int32), attention_mask=MASK),
        None,
        3e-3,
        80,
    ),
    "bert-token-classifier": (
        "bert-token-classifier",
        {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "dropout": 0.0, "classes": 3},
        Batch(READ, np.where(MASK > 0, READ % 3, -100).astype(np.int32), attention_mask=MASK),
        None,
        3e-3,
        80,
    ),
    "modern-bert": (
        "modern-bert",
        {**MODERN, "pooling": "cls"},
        Batch(READ, RNG.standard_normal((B, 32)).astype(np.float32), attention_mask=MASK),
        sentences,
        3e-3,
        120,
    ),
    "modern-bert-mlm": (
        "modern-bert-mlm",
        MODERN,
        Batch(READ, HIDDEN, attention_mask=MASK),
        None,
        5e-3,
        120,
    ),
    **{
        arch: (
            arch,
            {**sizes, "classes": 3},
            Batch(READ, np.array([0, 1, 2, 1], np.int32), attention_mask=MASK),
            None,
            3e-3,
            80,
        )
        for arch, sizes in {
            "modern-bert-classifier": MODERN,
            "llama-classifier": {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4},
        }.items()
    },
    "bert-reranker": (
        "bert-classifier",
        {**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "dropout": 0.0, "classes": 1},
        Batch(READ, np.array([0, 1, 1, 0], np.float32), attention_mask=MASK),
        None,
        3e-3,
        80,
    ),
    "t5": (
        "t5",
        {
            **{**LM, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_head_dim": 8},
            **{"n_ffn": 64, "dropout": 0.0},
        },
        Batch(READ, WRITTEN, attention_mask=MASK),
        None,
        1e-2,
        100,
    ),
    "mlp": ("mlp", {"inputs": 192, "hidden": (32,)}, (IMAGES, CLASSES), None, 1e-2, 60),
    "cnn": (
        "cnn",
        {"channels": 3, "size": 8, "widths": (8, 16), "hidden": 32},
        (IMAGES, CLASSES),
        None,
        1e-2,
        60,
    ),
    "resnet": (
        "resnet",
        {"widths": (8, 16), "blocks": (1, 1)},
        (IMAGES, CLASSES),
        None,
        1e-2,
        100,
    ),
}


def test_every_model_has_a_row():
    assert {row[0] for row in ROWS.values()} == set(MODELS)


@pytest.mark.parametrize("name", ROWS)
def test_one_batch_is_learnt(name):
    arch, sizes, batch, loss, lr, steps = ROWS[name]
    pg.seed(1)
    model = build(arch, sizes)
    step = TrainStep(model, AdamW(model.parameters(), lr=lr), loss=loss)
    losses = [step([batch]).loss for _ in range(steps)]
    assert losses[-1] < 0.05, losses[:: steps // 10]
    assert losses[0] > 20 * losses[-1], losses[0]
