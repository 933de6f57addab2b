# SPDX-License-Identifier: MIT
"""A GPT-2 with dropout: trained, resumed to the last bit, and without it when generating."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import TokenDataset
from pyggml.models import GPT2, Generator, GPT2Config
from pyggml.optim import AdamW
from pyggml.train import Trainer

SIZES = {"vocab_size": 17, "context": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}


def model(dropout: float) -> GPT2:
    pg.seed(1)
    return GPT2(GPT2Config(**SIZES, dropout=dropout))


def trainer(folder: Path, steps: int, dropout: float = 0.2) -> Trainer:
    net = model(dropout)
    ids = np.random.default_rng(0).integers(0, 17, 400).astype(np.int32)
    train, validation = TokenDataset(ids, 8).split(0.2)
    return Trainer(
        net, train, validation, AdamW(net.parameters(), lr=1e-2), checkpoint_dir=folder,
        schedule=lambda step: 1e-2, batch_size=4, steps=steps, seed=3, accumulate=2,
    )  # fmt: skip


def test_a_resumed_run_has_the_masks_it_would_have_had(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "a", 6)
    whole.fit()
    trainer(tmp_path / "b", 3).fit()
    rest = trainer(tmp_path / "b", 6)
    assert rest.resume() == 3
    rest.fit()
    for name, array in whole.model.state_dict().items():
        np.testing.assert_array_equal(rest.model.state_dict()[name], array)
    without = trainer(tmp_path / "c", 6, 0.0)
    without.fit()
    tables = [t.model.state_dict()["transformer.wte.weight"] for t in (whole, without)]
    assert np.abs(tables[0] - tables[1]).max() > 1e-3


def test_nothing_is_dropped_when_evaluating_or_generating() -> None:
    dropping, plain = model(0.5), model(0.0)
    assert dropping.state_dict().keys() == plain.state_dict().keys()
    ids = pg.tensor([[1, 2, 3]])
    want = plain(ids).numpy()
    assert np.abs(dropping(ids).numpy() - want).max() > 1e-3
    np.testing.assert_array_equal(
        Generator(dropping).feed([1, 2, 3]), Generator(plain).feed([1, 2, 3])
    )
    assert dropping.training
    dropping.eval()
    np.testing.assert_array_equal(dropping(ids).numpy(), want)


def test_the_share_is_checked() -> None:
    with pytest.raises(ValueError, match="Dropout: p "):
        GPT2Config(**SIZES, dropout=1.0)
