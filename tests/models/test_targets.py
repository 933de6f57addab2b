# SPDX-License-Identifier: MIT
"""Targets that are no classes: refused before a loss of NaN, by every model that has a loss."""

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Batch
from pyggml.errors import ShapeError
from pyggml.models import MODELS, build
from pyggml.optim import AdamW
from pyggml.train import TrainStep

SIZES = {"vocab_size": 31, "context": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
MORE = {"t5": {"n_head_dim": 8, "n_ffn": 32}}
OWN_LOSS = [arch for arch in MODELS if hasattr(MODELS[arch], "loss")]


def model_and_batch(arch, wrong):
    """A model, tokens, and good targets but for one."""
    pg.seed(0)
    model = build(arch, {**SIZES, **MORE.get(arch, {})})
    ids = np.random.default_rng(0).integers(0, 31, (2, 6)).astype(np.int32)
    targets = np.array([0, 1], np.int32) if arch.endswith("classifier") else ids.copy()
    if arch == "bert-token-classifier":  # a class for each word
        targets = ids % 2
    targets.flat[1] = wrong
    return model, ids, targets


def test_models_with_a_loss_are_these():
    heads = {f"{of}-{head}" for of in ("bert", "modern-bert") for head in ("mlm", "classifier")}
    assert set(OWN_LOSS) == {
        "gpt2",
        "llama",
        "llm",
        "t5",
        "llama-classifier",
        "bert-token-classifier",
        *heads,
    }


@pytest.mark.parametrize("arch", OWN_LOSS)
@pytest.mark.parametrize("beyond", [True, False])
def test_a_target_that_is_no_class_is_refused(arch, beyond):
    model, ids, targets = model_and_batch(arch, 0)
    classes = model.target_classes
    assert classes == (2 if arch.endswith("classifier") else 31)
    targets.flat[1] = classes if beyond else -5
    got = f"{targets.min()} to {targets.max()}"
    span = f"from 0 to {classes - 1}, or -100 where none counts; got {got}"
    for given in (pg.tensor(targets), pg.tensor(targets).reshape(*targets.shape)):
        with pytest.raises(ShapeError, match=rf"\.loss: targets must be {span}"):
            model.loss(pg.tensor(ids), given)
    before = [p.numpy() for p in model.parameters()]
    step = TrainStep(model, AdamW(model.parameters()))
    with pytest.raises(ValueError, match=rf"must be (a token )?from 0 to {classes - 1}.*got {got}"):
        step([Batch(ids, targets)])
    for old, new in zip(before, model.parameters(), strict=True):
        np.testing.assert_array_equal(old, new.numpy())


@pytest.mark.parametrize("arch", OWN_LOSS)
def test_good_and_ignored_targets_pass(arch):
    model, ids, targets = model_and_batch(arch, -100)
    assert np.isfinite(model.loss(pg.tensor(ids), pg.tensor(targets)).item())
    assert np.isfinite(TrainStep(model, AdamW(model.parameters()))([Batch(ids, targets)]).loss)
    # A function that is compiled is recorded before it is given anything.
    compiled = pg.compile(model.loss)
    assert np.isfinite(compiled(pg.tensor(ids), pg.tensor(targets)).item())


def test_a_loss_of_ones_own_takes_what_targets_it_likes():
    model = build("bert-classifier", {**SIZES, "classes": 1})
    ids, y = np.ones((2, 6), np.int32), np.array([3, 5], np.int32)

    def square_error(model, ids, y):
        return ((model(ids).reshape(-1) - pg.ops.cast(y, "f32")) ** 2).sum()

    assert TrainStep(model, AdamW(model.parameters()), loss=square_error)([(ids, y)]).loss > 1
