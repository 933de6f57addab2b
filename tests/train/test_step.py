# SPDX-License-Identifier: MIT
from __future__ import annotations

import numpy as np
import pytest

from pyggml import GradientError, RecordingError
from pyggml.data import IGNORE_INDEX
from pyggml.graph import Graph
from pyggml.optim import LBFGS, SGD, AdamW
from pyggml.train import GradScaler, NonFiniteError, TrainStep, eval_batches, evaluate
from pyggml.train.step import graphs

from .tiny import SEQ_LEN, VOCAB, make_model, same, tokens


def batch(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, VOCAB, (rows, SEQ_LEN)).astype(np.int32)
    y = rng.integers(0, VOCAB, (rows, SEQ_LEN)).astype(np.int32)
    y[rng.random(y.shape) < 0.2] = IGNORE_INDEX
    return x, y


def gradients(step):
    return {name: p.grad.numpy() for name, p in step.model.named_parameters()}


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_accumulation_equals_the_large_batch(arch):
    x, y = batch(8)
    y[:2] = IGNORE_INDEX  # parts with unequal numbers of targets
    results = []
    for parts in (1, 2, 4):
        model = make_model(arch)
        step = TrainStep(model, SGD(model.parameters(), lr=0.1))
        pieces = list(zip(np.split(x, parts), np.split(y, parts), strict=True))
        result = step(pieces)
        results.append((result, gradients(step), model.state_dict()))
    large = results[0]
    for result, grads, weights in results[1:]:
        assert result.tokens == large[0].tokens == np.count_nonzero(y != IGNORE_INDEX)
        assert result.loss == pytest.approx(large[0].loss, rel=1e-6)
        assert result.grad_norm == pytest.approx(large[0].grad_norm, rel=1e-6)
        for name, grad in grads.items():
            scale = np.linalg.norm(large[1][name])
            assert np.linalg.norm(grad - large[1][name]) <= 1e-6 * max(scale, 1.0), name
            np.testing.assert_allclose(weights[name], large[2][name], atol=1e-6)


def test_gradients_do_not_leak_into_the_next_step():
    model = make_model()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0))
    first = step([batch(4)]).grad_norm
    step([batch(4, seed=1)])
    assert step([batch(4)]).grad_norm == first


def test_loss_is_that_of_evaluation():
    model = make_model()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0))
    one = batch(4)
    total, counted = step.loss_sum(one)
    assert step([one]).loss == pytest.approx(total / counted, rel=1e-6)


def test_clipping_bounds_the_update():
    model = make_model()
    before = model.state_dict()
    step = TrainStep(model, SGD(model.parameters(), lr=1.0, weight_decay=0.0), clip=0.01)
    norm = step([batch(4)]).grad_norm
    moved = sum(np.sum((v - before[k]) ** 2.0) for k, v in model.state_dict().items()) ** 0.5
    assert norm > 0.01
    assert moved == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("where", ["weights", "update"])
def test_what_is_not_finite_stops_without_a_change(where):
    model = make_model()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    step = TrainStep(model, optimizer)
    step([batch(4)])
    if where == "weights":
        weight = model.parameters()[0]
        weight.copy_(np.full(weight.shape, np.nan, np.float32))
    else:
        model.parameters()[-1].copy_(np.full(model.parameters()[-1].shape, 1e38, np.float32))
    before, state = model.state_dict(), optimizer.state_dict()
    with pytest.raises(NonFiniteError, match="finite"):
        step([batch(4)])
    assert same(model.state_dict(), before)
    assert same(optimizer.state_dict(), state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x[:, :-1], y), "one shape"),
        (lambda x, y: (x[0], y[0]), "one shape"),
        (lambda x, y: (x + VOCAB, y), "input must be a token from 0 to 16"),
        (lambda x, y: (x - 100, y), "input must be a token"),
        (lambda x, y: (x, np.full_like(y, VOCAB)), "target must be a token"),
    ],
)
def test_bad_batches(change, words):
    model = make_model()
    step = TrainStep(model, SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=words):
        step([change(*batch(4))])
    with pytest.raises(ValueError, match="at least one batch"):
        step([])


def without_targets(rows):
    x, y = batch(rows)
    return x, np.full_like(y, IGNORE_INDEX)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SGD(p, lr=0.1, momentum=0.9),
        lambda p: AdamW(p, lr=0.1),
        lambda p: AdamW(p, lr=0.1, fused_update=True),
        lambda p: LBFGS(p, lr=0.1, max_iter=2),
    ],
    ids=["SGD", "AdamW", "AdamW, fused", "LBFGS"],
)
def test_a_step_without_a_target_changes_nothing(make, caplog):
    models = [make_model() for _ in range(2)]
    steps = [TrainStep(model, make(model.parameters())) for model in models]
    for step in steps:
        step([batch(4)])
    before, state = models[0].state_dict(), steps[0].optimizer.state_dict()
    for _ in range(2):
        result = steps[0]([without_targets(4)])
        assert np.isnan(result.loss)
        assert (result.tokens, result.grad_norm, result.skipped) == (0, 0.0, True)
        assert same(models[0].state_dict(), before)
        assert same(steps[0].optimizer.state_dict(), state)
    assert steps[0].empty == 2
    assert caplog.text.count("a step without a target that counts is skipped") == 1
    # As if they had not been.
    assert steps[0]([batch(4, seed=1)]) == steps[1]([batch(4, seed=1)])
    assert same(models[0].state_dict(), models[1].state_dict())


def test_the_loss_scale_does_not_heed_a_step_without_a_target():
    model = make_model()
    step = TrainStep(model, SGD(model.parameters(), lr=0.1), scaler=GradScaler())
    before = step.scaler.state_dict()
    step([without_targets(4)])
    assert step.scaler.state_dict() == before


def test_a_batch_without_a_target_adds_nothing():
    alone, together = make_model(), make_model()
    results = [
        TrainStep(model, SGD(model.parameters(), lr=0.1))(batches)
        for model, batches in (
            (alone, [batch(4)]),
            (together, [without_targets(2), batch(4), without_targets(4)]),
        )
    ]
    assert results[0] == results[1]
    assert same(alone.state_dict(), together.state_dict())


def test_many_steps_without_a_target_end():
    model = make_model()
    step = TrainStep(model, SGD(model.parameters(), lr=0.1))
    for seed in range(2):  # what is between begins the count anew
        for _ in range(99):
            step([without_targets(1)])
        step([batch(2, seed)])
    for _ in range(99):
        step([without_targets(1)])
    with pytest.raises(ValueError, match=r"100 steps in a row .*\(1, 8\)"):
        step([without_targets(1)])


def test_eval_batches_predict_every_token_once():
    ids = np.arange(1, 12, dtype=np.int32)
    batches = list(eval_batches(ids, 3, 2))
    assert {x.shape for x, _ in batches} == {(2, 3)}
    targets = np.concatenate([y.ravel() for _, y in batches])
    assert targets[targets != IGNORE_INDEX].tolist() == ids[1:].tolist()
    inputs = np.concatenate([x.ravel() for x, _ in batches])
    assert inputs[targets != IGNORE_INDEX].tolist() == ids[:-1].tolist()
    assert len(list(eval_batches(ids, 3, 100))) == 1
    assert len(list(eval_batches(ids, 1, 1, max_batches=4))) == 4
    with pytest.raises(ValueError, match="at least 2 tokens"):
        list(eval_batches(ids[:1], 3, 2))


def test_evaluation_is_weighted_by_tokens():
    """The mean over tokens does not depend on how they are divided into batches."""
    model = make_model()
    ids = tokens(100)
    results = [evaluate(model, eval_batches(ids, SEQ_LEN, size)) for size in (1, 3, 64)]
    for result in results[1:]:
        assert result.tokens == 99
        assert result.loss == pytest.approx(results[0].loss, rel=1e-6)
        assert result.perplexity == pytest.approx(np.exp(results[0].loss), rel=1e-5)
    with pytest.raises(ValueError, match="at least one target"):
        evaluate(model, [])


def test_evaluation_changes_nothing():
    model = make_model()
    before = model.state_dict()
    evaluate(model, eval_batches(tokens(50), SEQ_LEN, 2))
    assert same(model.state_dict(), before)
    assert model.training


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("make", [SGD, AdamW])
def test_freezing_between_steps_is_noticed(make, fused):
    model = make_model("gpt2")
    step = TrainStep(model, make(model.parameters(), lr=0.1, fused_update=fused))
    one = batch(4)
    step([one])
    head, *others = model.parameters()
    for frozen in ([head], others[:2], []):
        for p in model.parameters():
            p.requires_grad = not any(p is f for f in frozen)
        before = {n: p.numpy() for n, p in model.named_parameters()}
        result = step([one])
        assert result.grad_norm > 0
        for name, p in model.named_parameters():
            moved = not np.array_equal(p.numpy(), before[name])
            assert moved == p.requires_grad, name
    model.freeze()
    with pytest.raises(GradientError, match="every parameter is frozen"):
        step([one])
    assert np.isfinite(step.loss_sum(one)[0])


def test_a_frozen_parameter_s_gradient_is_not_in_the_norm():
    one, norms = batch(4), []
    for early in (True, False):
        model = make_model("gpt2")
        if early:
            model.parameters()[0].requires_grad = False
        step = TrainStep(model, SGD(model.parameters(), lr=0.0), clip=1.0)
        if not early:
            step([one])
            model.parameters()[0].requires_grad = False
        norms.append(step([one]).grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_line_search(parts):
    """L-BFGS sees one function in all its calls, dropout included."""
    model = make_model()
    optimizer = LBFGS(model.parameters(), lr=0.5, max_iter=4)
    step = TrainStep(model, optimizer)
    x, y = batch(4)
    pieces = list(zip(np.split(x, parts), np.split(y, parts), strict=True))
    losses = [step(pieces).loss for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert step.loss_sum((x, y))[0] / np.count_nonzero(y != IGNORE_INDEX) < losses[-1] < losses[0]
    assert step.runs == 4 * parts
    weight = model.parameters()[0]
    weight.copy_(np.full(weight.shape, np.nan, np.float32))
    before = model.state_dict()
    with pytest.raises(NonFiniteError, match="finite"):
        step(pieces)
    assert same(model.state_dict(), before)
    for options in ({"clip": 1.0}, {"clip_value": 1.0}, {"precision": "f16"}):
        with pytest.raises(ValueError, match="line search"):
            TrainStep(model, optimizer, **options)


def test_a_loss_that_reads_is_refused():
    def loss(model, ids, targets):
        total = model.loss(ids, targets, reduction="sum")
        return total * float(total)

    model = make_model()
    with pytest.raises(RecordingError, match="TrainStep: the function must not read"):
        TrainStep(model, SGD(model.parameters(), lr=0.1), loss=loss)([batch(4)])


def test_a_graph_for_each_shape_whatever_the_batches_of_a_step(monkeypatch):
    """Steps of several batches add up; one that has a single batch then does so, too."""
    made = []

    def graph(*args, **more):
        made.append(more.get("overwrite"))
        return Graph(*args, **more)

    monkeypatch.setattr(graphs, "Graph", graph)
    model = make_model("gpt2")
    step = TrainStep(model, SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        step([batch(4)])
        step([batch(2)])
    assert made == [True, True]
    made.clear()
    for _ in range(2):
        step([batch(4), batch(2), batch(4, 1)])
        step([batch(4)])
    assert made == [False, False]


def test_the_bits_do_not_depend_on_how_gradients_are_begun():
    trained = []
    for accumulates in (False, True):
        model = make_model("llama")
        step = TrainStep(model, AdamW(model.parameters(), lr=1e-2), clip=0.1)
        step.accumulates = accumulates
        results = [step([batch(4, i)]) for i in range(3)]
        trained.append((results, gradients(step), model.state_dict()))
    assert trained[0][0] == trained[1][0]
    assert same(trained[0][1], trained[1][1])
    assert same(trained[0][2], trained[1][2])


def test_gradients_that_are_not_kept_are_not_taken():
    model = make_model()
    optimizer = AdamW(model.parameters(), fused_update=True)
    with pytest.raises(GradientError, match="take_grads: needs the gradients"):
        optimizer.take_grads()
    kept = AdamW(model.parameters())
    kept.trained().clear()
    assert len(kept.trained()) == len(model.parameters())
