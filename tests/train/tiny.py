# SPDX-License-Identifier: MIT
"""A model, data and a trainer that are as small as can be."""

from __future__ import annotations

import json

import numpy as np

import pyggml as pg
from pyggml.data import TokenDataset
from pyggml.io.sealed import hash_file, seal
from pyggml.models import build
from pyggml.optim import decay_groups, muon_groups, optimizers
from pyggml.train import Trainer

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


def make_optimizer(model, name="adamw", lr=1e-2, weight_decay=0.1, **options):
    """An optimizer by name, whose matrices alone decay."""
    make_groups = muon_groups if name == "muon" else decay_groups
    return optimizers()[name](make_groups(model, weight_decay), lr=lr, **options)


def make_trainer(
    tmp_path=None, callbacks=(), arch="llama", ids=None, lr=1e-2, weight_decay=0.1,
    fused_update=False, folder=None, val=True, **options,
):  # fmt: skip
    """A trainer; `val` is its validation sets, or True for a part of the tokens."""
    options = {"batch_size": 4, "steps": 12, "seed": 3, **options}
    model = make_model(arch, options["seed"])
    train, validation = TokenDataset(tokens() if ids is None else ids, SEQ_LEN).split(0.2)
    optimizer = make_optimizer(model, "adamw", lr, weight_decay, fused_update=fused_update)
    folder = folder if tmp_path is None else tmp_path / "checkpoints"
    return Trainer(
        model, train, validation if val is True else val, optimizer, checkpoint_dir=folder,
        callbacks=callbacks, **options,
    )  # fmt: skip


def same(a, b):
    """Whether two state dicts are equal to the last bit."""
    return a.keys() == b.keys() and all(
        np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes() for name in a
    )


def read_state(path):
    """The manifest of a checkpoint, without its own hash."""
    record = json.loads((path / "state.json").read_text())
    del record["sha256"]
    return record


def write_state(path, record):
    """Write a manifest with a hash that fits; the best checkpoint may share the old one's file."""
    (path / "state.json").unlink()
    (path / "state.json").write_bytes(seal(record))


def edit_state(path, **changes):
    """Change or (...) remove fields of a checkpoint's manifest, with a hash that fits."""
    record = {**read_state(path), **changes}
    write_state(path, {name: value for name, value in record.items() if value is not ...})


def record_file(path):
    """Let the manifest have the size and hash of a file that was changed."""
    files = read_state(path.parent)["files"]
    files[path.name] = {"size_bytes": path.stat().st_size, "sha256": hash_file(path)}
    edit_state(path.parent, files=files)
