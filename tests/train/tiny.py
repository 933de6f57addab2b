# SPDX-License-Identifier: MIT
"""A model, data and a trainer that are as small as can be."""

from __future__ import annotations

import numpy as np

import pyggml as pg
from pyggml.data import Loader, TokenDataset
from pyggml.models import build
from pyggml.optim import AdamW, decay_groups
from pyggml.train import TrainConfig, Trainer

VOCAB, SEQ_LEN = 17, 8
SIZES = {
    "llama": {"n_layer": 2, "n_head": 2, "n_kv_head": 1, "n_embd": 16, "context": SEQ_LEN},
    "gpt2": {"n_layer": 2, "n_head": 2, "n_embd": 16, "context": SEQ_LEN},
}


def tokens(count=400, seed=0):
    """A stream with something to learn: mostly the successor, sometimes anything."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(count) < 0.8, 1, rng.integers(0, VOCAB, count))
    return (np.cumsum(steps) % VOCAB).astype(np.int32)


def make_model(arch="llama", seed=0):
    pg.seed(seed)
    return build(arch, SIZES[arch], vocab_size=VOCAB)


def make_trainer(tmp_path=None, callbacks=(), arch="llama", ids=None, **options):
    settings = {"batch_size": 4, "steps": 12, "lr": 1e-2, "val_fraction": 0.2, "seed": 3}
    config = TrainConfig(**{**settings, **options})
    model = make_model(arch, config.seed)
    train, validation = TokenDataset(tokens() if ids is None else ids, SEQ_LEN).split(0.2)
    groups = decay_groups(model, config.weight_decay)
    optimizer = AdamW(groups, lr=config.lr, fused_update=config.fused_update)
    loader = Loader(train, config.batch_size, seed=config.seed)
    folder = None if tmp_path is None else tmp_path / "checkpoints"
    return Trainer(
        model, optimizer, loader, validation, config, checkpoint_dir=folder, callbacks=callbacks
    )


def same(a, b):
    """Whether two state dicts are equal to the last bit."""
    return a.keys() == b.keys() and all(
        np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes() for name in a
    )
