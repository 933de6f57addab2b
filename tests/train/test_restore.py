# SPDX-License-Identifier: MIT
"""A resume that fails leaves everything as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Loader
from pyggml.errors import FormatError
from pyggml.io import load_safetensors, save_safetensors
from pyggml.optim import EMA

from .test_resume import make
from .tiny import edit_state, record_file, same


def everything(trainer):
    """All that a resume may change, as bytes."""
    arrays = {
        **{f"model.{k}": v for k, v in trainer.model.state_dict().items()},
        **{f"optimizer.{k}": v for k, v in trainer.optimizer.state_dict().items()},
        **{f"ema.{k}": v for k, v in trainer.ema.state_dict().items()},
    }
    plain = {
        "loader": trainer.loader.state_dict(),
        "scaler": None if trainer.scaler is None else trainer.scaler.state_dict(),
        "schedule": trainer.schedule.state_dict(),
        "generator": pg.random_generator().bit_generator.state,
        "own": [trainer.step, trainer.tokens, trainer.elapsed_s, trainer.best],
        "last": [trainer.last_checkpoint, trainer.best_checkpoint, trainer.evaluated],
    }
    return arrays, json.dumps(plain, default=str)


def edit_arrays(path, name, change):
    """Change arrays of a checkpoint, with sizes and checksums to match."""
    arrays = load_safetensors(path / name)
    change(arrays)
    save_safetensors(path / name, arrays, {})
    record_file(path / name)


def shorten(prefix):
    def change(arrays):
        name = next(n for n in arrays if n.startswith(prefix) and arrays[n].ndim)
        arrays[name] = np.zeros(arrays[name].shape[0] + 1, np.float32)

    return change


DAMAGE = {
    "loader": lambda path: edit_state(path, loader={"epoch": 0}),
    "rng": lambda path: edit_state(path, rng={"generator": {"bit_generator": "PCG64"}}),
    "scaler": lambda path: edit_state(path, scaler={"scale": -1}),
    "schedule": lambda path: edit_state(path, schedule={"scale": 1}),
    "schedule of another kind": lambda path: edit_state(
        path, schedule={"scale": 1, "best": "x", "bad": 0, "cooling": 0}
    ),
    "model": lambda path: edit_arrays(path, "model.safetensors", shorten("")),
    "model without one": lambda path: edit_arrays(path, "model.safetensors", dict.popitem),
    "optimizer": lambda path: edit_arrays(path, "optimizer.safetensors", shorten("transformer")),
    "optimizer with one more": lambda path: edit_arrays(
        path, "optimizer.safetensors", lambda a: a.update(more=np.zeros(1, np.float32))
    ),
    "average": lambda path: edit_arrays(path, "optimizer.safetensors", shorten("ema/average")),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("adamw", each) for each in DAMAGE),
        *((name, each) for name in ("lbfgs", "adamw8bit") for each in DAMAGE if "opt" in each),
    ],
)
def test_what_does_not_fit_changes_nothing(tmp_path, damage, name):
    damage = DAMAGE[damage]
    options = {"optimizer": name, "precision": "f32" if name == "lbfgs" else "f16"}
    if name == "lbfgs":
        options |= {"clip": 0.0, "optimizer_options": {"max_iter": 2, "weight_decay": 0.0}}
        if damage is DAMAGE["optimizer"]:
            damage = lambda path: edit_arrays(path, "optimizer.safetensors", shorten("history"))  # noqa: E731
    if name == "adamw8bit" and damage is DAMAGE["optimizer"]:
        options["optimizer_options"] = {"min_8bit_size": 0}
    make(tmp_path, **options, steps=3).fit()
    path = tmp_path / "step-000003"
    other = make(tmp_path / "other", seed=7, **options)
    other.fit()
    pg.random_generator().random(7)
    before = everything(other)
    damage(path)
    with pytest.raises(FormatError):
        other.resume(path)
    after = everything(other)
    assert same(after[0], before[0])
    assert after[1] == before[1]
    # It still works, and trains on as it would have.
    result = other.evaluate()
    assert np.isfinite(result.loss)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_an_interruption_on_the_way_changes_nothing(tmp_path, monkeypatch, error):
    make(tmp_path, steps=3).fit()
    other = make(tmp_path / "other", seed=7)
    before = everything(other)

    def fail(self, state):
        raise error

    monkeypatch.setattr(type(other.optimizer), "load_state_dict", fail)
    with pytest.raises(error):
        other.resume(tmp_path / "step-000003")
    after = everything(other)
    assert same(after[0], before[0])
    assert after[1] == before[1]


def test_an_average_that_begins_with_the_weights_is_not_taken_from_a_failure(tmp_path):
    """A checkpoint without an average, and an optimizer that does not fit."""
    make(tmp_path, steps=3, ema=0.0).fit()
    path = tmp_path / "step-000003"
    edit_arrays(path, "optimizer.safetensors", shorten("transformer"))
    other = make(tmp_path / "other", seed=7)
    before, ema = everything(other), other.ema
    with pytest.raises(FormatError, match=r"optimizer\.safetensors"):
        other.resume(path)
    assert other.ema is ema
    assert isinstance(ema, EMA)
    assert same(everything(other)[0], before[0])


def test_a_loader_that_fails_half_way_is_put_back(tmp_path):
    make(tmp_path, steps=3).fit()
    other = make(tmp_path / "other", seed=7)

    class Careless(Loader):
        def load_state_dict(self, state):
            self.epoch = 5
            super().load_state_dict(state)

    edit_state(tmp_path / "step-000003", loader={"epoch": 1, "position": -1})
    before = other.loader.state_dict()
    other.loader.loader.__class__ = Careless  # which is read ahead
    with pytest.raises(FormatError, match="loader"):
        other.resume(tmp_path / "step-000003")
    assert other.loader.state_dict() == before
