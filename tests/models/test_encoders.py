# SPDX-License-Identifier: MIT
"""BERT and T5 beyond parity: padding, embeddings, writing, mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import AugmentedDataset, CorruptSpans, Documents, MaskTokens
from pyggml.models import BERT, T5, BERTConfig, T5Config, build, generate_from
from pyggml.optim import AdamW
from pyggml.train import TrainStep

V = 31
RNG = np.random.default_rng(2)


def bert(**sizes):
    pg.seed(3)
    return BERT(BERTConfig.preset("tiny", vocab_size=V, **sizes))


def t5(**sizes):
    pg.seed(3)
    model = T5(T5Config.preset("tiny", vocab_size=V, context=50, **sizes))
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.numpy() * 2)  # far from uniform: greedy choices are clear
    return model


def ids(*shape):
    return RNG.integers(2, V, shape).astype(np.int32)


@pytest.mark.parametrize("attention", ["plain", "flash"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_what_fills_a_row_up_changes_nothing(attention, pooling):
    model, short = bert(attention=attention), ids(1, 5)
    filled, mask = np.zeros((2, 9), np.int32), np.zeros((2, 9), np.int32)
    filled[0, :5], filled[1] = short, ids(9)
    mask[0, :5], mask[1] = 1, 1
    alone = model.embed(pg.tensor(short), pooling=pooling).numpy()[0]
    beside = model.embed(pg.tensor(filled), pg.tensor(mask), pooling=pooling).numpy()[0]
    near = 1e-6 if attention == "plain" else 1e-3
    np.testing.assert_allclose(beside, alone, atol=near)
    assert (alone**2).sum() == pytest.approx(1, rel=1e-5)
    longer = model.embed(pg.tensor(short), pooling=pooling, normalize=False).numpy()[0]
    np.testing.assert_allclose(longer / np.linalg.norm(longer), alone, rtol=1e-5, atol=1e-6)


def test_types_matter_and_default_to_the_first():
    model, x = bert(), pg.tensor(ids(2, 5))
    plain = model(x).numpy()
    np.testing.assert_array_equal(plain, model(x, types=pg.zeros((2, 5), dtype="i32")).numpy())
    other = model(x, types=pg.tensor(np.ones((2, 5), np.int32))).numpy()
    assert np.abs(plain - other).max() > 0


def test_old_names_load():
    model = bert()
    state = {}
    for key, array in model.state_dict().items():
        new = key.replace("LayerNorm.weight", "LayerNorm.gamma")
        state["bert." + new.replace("LayerNorm.bias", "LayerNorm.beta")] = array
    state["bert.embeddings.position_ids"] = np.arange(64)[None]
    state["bert.pooler.dense.weight"] = np.ones((64, 64))
    state["cls.predictions.bias"] = np.ones(V)
    bert().load_state_dict(state)
    with pytest.raises(KeyError, match=r"unexpected encoder\.layer\.9\.extra"):
        bert().load_state_dict({**state, "encoder.layer.9.extra": np.ones(1)})
    body = build("bert-mlm", {"vocab_size": V, **BERTConfig.PRESETS["tiny"]})
    body.load_state_dict(model.state_dict(), strict=False)
    key = "bert.encoder.layer.1.output.dense.weight"
    np.testing.assert_array_equal(body.state_dict()[key], model.state_dict()[key[5:]])


def test_pooler_names():
    state = build("bert-classifier", BERTConfig.PRESETS["tiny"], vocab_size=V).state_dict()
    assert {"bert.pooler.dense.weight", "classifier.bias"} <= set(state)
    assert state["classifier.weight"].shape == (2, 64)


def test_the_data_of_masks_trains_it():
    documents = Documents.of([RNG.integers(5, 12, 200).astype(np.int32)])
    data = AugmentedDataset(documents, 16, MaskTokens(4, V))
    model = build("bert-mlm", {"vocab_size": V, **BERTConfig.PRESETS["tiny"]})
    step = TrainStep(model, AdamW(model.parameters(), lr=3e-3))
    batch = data.batch(np.arange(8))
    assert sorted(batch.inputs) == ["attention_mask"]
    losses = [step([batch]).loss for _ in range(15)]
    assert losses[-1] < losses[0] - 0.5


def test_the_data_of_spans_trains_t5():
    documents = Documents.of([RNG.integers(5, 12, 200).astype(np.int32)])
    corrupt = CorruptSpans(tuple(range(V - 1, V - 6, -1)), eos_id=1, rate=0.3)
    data = AugmentedDataset(documents, 16, corrupt)
    model = build("t5", {"vocab_size": V, **T5Config.PRESETS["tiny"]})
    step = TrainStep(model, AdamW(model.parameters(), lr=3e-3))
    batch = data.batch(np.arange(8))
    assert sorted(batch.inputs) == ["attention_mask", "decoder_ids"]
    losses = [step([batch]).loss for _ in range(15)]
    assert losses[-1] < losses[0] - 0.5


def test_targets_are_shifted_as_the_data_shifts_them():
    model, x, y = t5(), pg.tensor(ids(2, 6)), ids(2, 4)
    y[1, 2:] = -100
    given = np.concatenate([np.zeros((2, 1), np.int32), np.maximum(y, 0)[:, :-1]], 1)
    by_hand = model.loss(x, pg.tensor(y), decoder_ids=pg.tensor(given)).item()
    assert model.loss(x, pg.tensor(y)).item() == by_hand
    one = model.loss(x, pg.tensor(y[:, :1]), reduction="none")
    assert one.shape == (2, 1)


@pytest.mark.parametrize("sizes", [{}, {"gated": True, "tie": False, "n_decoder": 1}])
def test_cached_greedy_writing_is_that_of_whole_passes(sizes):
    model, x = t5(**sizes), ids(1, 7)
    written = model.generate(x[0], 40, stop_ids=())
    so_far = [0]
    for token in written:
        logits = model(pg.tensor(x), decoder_ids=pg.tensor(np.array([so_far], np.int32)))
        assert int(logits.numpy()[0, -1].argmax()) == token
        so_far.append(token)
    assert len(written) == 40


def test_writing_stops_and_follows_the_seed():
    model, x = t5(), ids(7)
    free = model.generate(x, 20, stop_ids=())
    cut = model.generate(x, 20, stop_ids={free[4]})
    assert cut == free[: free.index(free[4])]
    seen = []
    assert model.generate(x, 6, stop_ids=(), callback=seen.append) == seen
    assert model.generate(x, 6, stop_ids=(), callback=lambda token: False) == free[:1]
    assert model.generate(x, 0) == []
    warm = {"temperature": 2.0, "stop_ids": ()}
    first = generate_from(model, x, 20, seed=1, **warm)
    assert first == generate_from(model, x, 20, seed=1, **warm)
    assert first != generate_from(model, x, 20, seed=2, **warm)
    model.train()
    model.generate(x, 2)
    assert model.training


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_checkpointing_keeps_the_bits(family):
    x, y = ids(2, 6), ids(2, 6)
    grads = []
    for every in (False, True, 2):
        if family == "bert":
            pg.seed(3)
            model = build("bert-mlm", {"vocab_size": V, **BERTConfig.PRESETS["tiny"]})
        else:
            model = t5()
        model.checkpointing = every
        loss = model.loss(pg.tensor(x), pg.tensor(y))
        found = {p: pg.zeros(p.shape) for p in model.parameters()}
        pg.Graph([loss], loss=loss, grads=found).run()
        grads.append([g.numpy() for g in found.values()])
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


X = pg.tensor(np.ones((2, 5), np.int32))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: bert()(pg.tensor([1, 2])), pg.ShapeError, r"ids must be \(B, T\); got \(2,\)"),
        (lambda: bert()(pg.zeros((1, 65), dtype="i32")), pg.ShapeError, "got T=65, context=64"),
        (
            lambda: bert()(X, attention_mask=pg.zeros((2, 4), dtype="i32")),
            pg.ShapeError,
            r"attention_mask must be as ids, \(2, 5\); got \(2, 4\)",
        ),
        (
            lambda: bert()(X, types=pg.zeros((2, 4), dtype="i32")),
            pg.ShapeError,
            "types must be as ids",
        ),
        (lambda: bert()(X, attention_mask=pg.ones((2, 5))), pg.DTypeError, "must be i32"),
        (lambda: bert().embed(X, pooling="max"), ValueError, "pooling must be one of mean, cls"),
        (lambda: bert()([[1, 2]]), TypeError, "ids must be a Tensor; got list"),
        (lambda: BERTConfig(pooling="first"), ValueError, "pooling must be one of mean, cls"),
        (lambda: BERTConfig(n_head=7), ValueError, "n_head must divide n_embd"),
        (lambda: BERTConfig(labels=("a",)), ValueError, "must be 2 names, as many as classes"),
        (lambda: BERTConfig(types=0), ValueError, "types must be a whole number >= 1"),
        (
            lambda: T5Config(start_id=32128),
            ValueError,
            "start_id must be a whole number >= 0 and <= 32127",
        ),
        (lambda: T5Config(buckets=5), ValueError, "buckets must be even"),
        (lambda: T5Config(n_head_dim=0), ValueError, "n_head_dim must be a whole number >= 1"),
        (
            lambda: t5()(X, decoder_ids=pg.zeros((1, 3), dtype="i32")),
            pg.ShapeError,
            "decoder_ids must be as many rows as ids",
        ),
        (
            lambda: t5().loss(X, X, decoder_ids=pg.zeros((2, 3), dtype="i32")),
            pg.ShapeError,
            r"decoder_ids must be as targets, \(2, 5\); got \(2, 3\)",
        ),
        (lambda: t5().loss(X, pg.tensor([1, 2])), pg.ShapeError, r"targets must be \(B, U\)"),
        (lambda: t5().encode(X, pg.zeros((2, 9), dtype="i32")), pg.ShapeError, "must be as ids"),
        (lambda: t5().generate([]), ValueError, "at least one integer"),
        (lambda: t5().generate([V]), ValueError, "must be from 0 to 30"),
        (lambda: t5().generate([1] * 51), ValueError, "at most the context, 50; got 51"),
        (lambda: t5().generate([1], 51), ValueError, "at most the context, 50; got 1 and 51"),
        (lambda: t5().generate([1], temperature=-1), ValueError, "temperature must be"),
        (lambda: T5(BERTConfig()), TypeError, "config must be a T5Config; got BERTConfig"),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
