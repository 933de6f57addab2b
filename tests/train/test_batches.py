# SPDX-License-Identifier: MIT
"""Batches of other kinds: images and classes, further inputs, decimal targets."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, ops
from pyggml.data import IGNORE_INDEX, Batch, Documents, Loader, PackedDataset, Prefetch
from pyggml.errors import ShapeError
from pyggml.optim import SGD, AdamW
from pyggml.train import Trainer, TrainStep, f1_score
from pyggml.train.batches import spec_of
from pyggml.train.losses import count_distributions, count_targets

from .tiny import SEQ_LEN, VOCAB, make_model, make_optimizer, same


class Named(tuple):
    """A pair with further inputs by name, as `pyggml.data.Batch`."""

    def __new__(cls, x, y, **inputs):
        pair = super().__new__(cls, (x, y))
        pair.inputs = inputs
        return pair


class Classifier(nn.Module):
    def __init__(self):
        pg.seed(0)
        self.hidden = nn.Linear(4, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x, shift=None):
        x = x if shift is None else x + shift
        return self.head(ops.relu(self.hidden(x)))


def clouds(count, seed=0):
    """Three clouds of points, and which is whose."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count).astype(np.int32)
    x = 0.3 * rng.standard_normal((count, 4)) + np.eye(4)[y]
    return x.astype(np.float32), y


class Batches:
    """Endless batches of a few arrays, in order."""

    def __init__(self, *arrays, batch_size=8):
        self.arrays, self.batch_size, self.position = arrays, batch_size, 0

    def __len__(self):
        return len(self.arrays[0]) // self.batch_size

    def __iter__(self):
        while True:
            at = self.position % len(self)
            self.position += 1
            yield self._batch(at)

    def once(self):
        return (self._batch(at) for at in range(len(self)))

    def _batch(self, at):
        rows = slice(at * self.batch_size, (at + 1) * self.batch_size)
        return tuple(array[rows] for array in self.arrays)

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_a_trainer_of_a_classifier(tmp_path):
    model = Classifier()
    trainer = Trainer(
        model,
        Batches(*clouds(64)),
        Batches(*clouds(64, 1)),
        AdamW(model.parameters(), lr=3e-2),
        checkpoint_dir=tmp_path,
        steps=60,
        warmup=0,
        metrics=("accuracy", "top2", "f1"),
    )
    assert trainer.plan().activations > 0
    first = trainer.evaluate()
    last = trainer.fit().validation
    assert first.loss == pytest.approx(np.log(3), rel=0.3)
    assert last.loss < 0.3
    assert last.metrics["accuracy"] > 0.9
    assert last.metrics["top2"] >= last.metrics["accuracy"]
    x, y = clouds(64, 1)
    assert last.metrics["f1"] == pytest.approx(
        f1_score(trainer.train_step.logits((x, y)).argmax(axis=-1), y)
    )
    with pytest.raises(ValueError, match="mfu"):
        Trainer(model, trainer.loader, mfu=True)


def test_further_inputs_by_name():
    x, y = clouds(8)
    shift = np.full((8, 4), 0.5, np.float32)
    runs = []
    for batch in ((x + shift, y), Named(x, y, shift=shift)):
        model = Classifier()
        step = TrainStep(model, SGD(model.parameters(), lr=0.1))
        runs.append((step([batch]), model.state_dict(), step.logits(batch)))
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])
    np.testing.assert_array_equal(runs[0][2], runs[1][2])


def test_pairs_and_further_inputs_take_turns():
    """Each kind of batch has a graph of its own."""
    x, y = clouds(8)
    model = Classifier()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0))
    zero = np.zeros((8, 4), np.float32)
    losses = [step([batch]).loss for batch in ((x, y), Named(x, y, shift=zero), (x, y))]
    assert losses[0] == losses[1] == losses[2]


def test_decimal_targets_count_by_rows():
    x, _ = clouds(8)
    y = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)

    def squares(model, x, y):
        return ops.sqr(model(x) - y).sum(), y.shape[0]

    model = Classifier()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0), loss=squares)
    result = step([(x, y)])
    assert result.tokens == 8
    want = np.sum((step.logits((x, y)) - y) ** 2.0) / 8
    assert result.loss == pytest.approx(want, rel=1e-5)


def test_counting():
    y = np.array([0, IGNORE_INDEX, 2])
    assert count_targets((y, y)) == 2
    assert count_targets((y, np.zeros((3, 5)))) == 3
    # Of distributions those that are not all 0; what is none is left to the loss to refuse.
    assert count_distributions((y, np.array([[0.5, 0.5], [0, 0], [0, 1]]))) == 2
    assert count_distributions((y, np.zeros(3))) == 3
    assert count_distributions((y, y)) == 2
    assert spec_of((np.zeros((3, 2)), y)) == (("x", (3, 2), "f32"), ("y", (3,), "i32"))


def test_a_distribution_of_zeros_is_no_target():
    """As images that cannot be read have it with mixup."""
    x, _ = clouds(4)
    y = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    y[1:3] = 0
    model = Classifier()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0))
    assert step([(x, y)]).tokens == 2
    assert step([(x, y)]).loss == pytest.approx(step([(x[[0, 3]], y[[0, 3]])]).loss, rel=1e-6)
    assert step([(x, np.zeros_like(y))]).skipped


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        ((np.zeros((3, 4)), np.zeros(2, int)), ValueError, "must be as many"),
        ((np.zeros(()), np.zeros((), int)), ValueError, "must be as many"),
        ((np.zeros((3, 4)), np.array(["a"] * 3)), ValueError, "y must hold numbers"),
        ((np.zeros((3, 5)), np.zeros(3, int)), ShapeError, "in_features"),
        ((np.zeros((3, 4)), np.full(3, 3)), ValueError, "class numbers from 0 to 2"),
        (Named(np.zeros((3, 4)), np.zeros(3, int), shift=np.zeros((9, 4))), ValueError, "shape"),
        (Named(np.zeros((3, 4)), np.zeros(3, int), tilt=np.zeros((3, 4))), TypeError, "tilt"),
    ],
)
def test_bad_batches(batch, error, words):
    model = Classifier()
    before = model.state_dict()
    with pytest.raises(error, match=words):
        TrainStep(model, SGD(model.parameters(), lr=0.1))([batch])
    assert same(model.state_dict(), before)


def test_a_language_model_wants_tokens():
    model = make_model()
    x, y = clouds(8)
    with pytest.raises(ValueError, match="one shape"):
        TrainStep(model, SGD(model.parameters(), lr=0.1))([(x, y)])
    with pytest.raises((ValueError, TypeError), match=r"i32|f32|whole"):
        TrainStep(model, SGD(model.parameters(), lr=0.1))([(x, x)])


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_packed_documents(arch):
    """Positions and segments come with the batch: losses are those of the documents apart."""
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, VOCAB, n).astype(np.int32) for n in (5, 3, 9, 4, 6)]
    packed = PackedDataset(Documents.of(documents), SEQ_LEN)
    rows = packed.batch(np.arange(len(packed)))
    model = make_model(arch)
    step = TrainStep(model, SGD(model.parameters(), lr=0.0))
    result = step([rows])
    total = count = 0
    for document in documents:
        for at in range(0, len(document) - 1, SEQ_LEN):
            piece = document[at : at + SEQ_LEN + 1]
            loss, counted = step.loss_sum((piece[None, :-1], piece[None, 1:]))
            total, count = total + loss, count + counted
    assert result.tokens == count
    assert result.loss == pytest.approx(total / count, rel=1e-5)
    plain = (rows.x, rows.y)
    assert step([plain]).loss != result.loss
    far = Batch(rows.x, rows.y, positions=rows.inputs["positions"] + 10**6)
    if arch == "gpt2":
        with pytest.raises((IndexError, ValueError)):
            step([far])


def test_a_trainer_with_packing_and_prefetch(tmp_path):
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, VOCAB, n).astype(np.int32) for n in rng.integers(2, 9, 60)]

    def trainer(folder):
        model = make_model("gpt2")
        loader = Loader(PackedDataset(Documents.of(documents), SEQ_LEN), 4, seed=1)
        held_back = Loader(
            PackedDataset(Documents.of(documents[:20]), SEQ_LEN), 2, shuffle=False, pad_last=True
        )
        return Trainer(
            model, Prefetch(loader), held_back, make_optimizer(model, lr=2e-3),
            checkpoint_dir=folder, steps=6, save_every=3, keep=9,
        )  # fmt: skip

    whole = trainer(tmp_path / "a")
    assert whole.plan().activations > 0
    assert whole.fit().validation.tokens == sum(len(d) - 1 for d in documents[:20])
    again = trainer(tmp_path / "b")
    assert again.resume(tmp_path / "a" / "step-000003") == 3
    again.fit()
    assert same(again.model.state_dict(), whole.model.state_dict())
    whole.loader.close()
    again.loader.close()
