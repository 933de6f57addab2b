# SPDX-License-Identifier: MIT
"""The loss of a step: a scalar mean, or (sum, count)."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.data import IGNORE_INDEX, ArrayDataset, Loader
from pyggml.nn import functional
from pyggml.optim import SGD
from pyggml.train import Trainer, TrainStep, count_targets, evaluate

from .test_batches import Batches, Classifier, clouds
from .test_step import batch
from .tiny import make_model, same


def of(reduction, count=None):
    """A cross-entropy, with a count or without."""

    def loss(model, x, y, **more):
        found = functional.cross_entropy(model(x, **more), y, reduction=reduction)
        return found if count is None else (found, count(y))

    return loss


def counted(y):
    """Count the classes of a tensor of targets in the graph."""
    return ops.step(ops.scale(ops.cast(y, "f32"), 1.0, 0.5)).sum()


COUNTS = {
    "a number": lambda y: y.numel(),
    "a tensor": counted,
    "a function of the batch": lambda y: count_targets,
}


def stepped(loss, pieces, **options):
    """A step's result and the weights after it."""
    pg.seed(0)
    model = Classifier()
    step = TrainStep(model, SGD(model.parameters(), lr=0.1), loss=loss, **options)
    return step(pieces), model.state_dict()


def pieces_of(x, y, sizes):
    at = np.cumsum(sizes)[:-1]
    return list(zip(np.split(x, at), np.split(y, at), strict=True))


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_a_sum_and_its_count_are_the_mean(count, precision):
    x, y = clouds(8)
    mean, weights = stepped(of("mean"), [(x, y)], precision=precision)
    summed, others = stepped(of("sum", count), [(x, y)], precision=precision)
    assert mean.tokens == summed.tokens == 8
    assert summed.loss == pytest.approx(mean.loss, rel=1e-6)
    for name, value in weights.items():
        np.testing.assert_allclose(others[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [counted, lambda y: count_targets], ids=["tensor", "function"])
def test_accumulation_is_exact_however_targets_are_spread(count):
    x, y = clouds(12)
    y[:5] = IGNORE_INDEX
    whole, weights = stepped(of("sum", count), [(x, y)])
    # One batch without a target, one with few, one with many.
    parts, others = stepped(of("sum", count), pieces_of(x, y, (4, 4, 4)))
    assert whole.tokens == parts.tokens == 7
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    for name, value in weights.items():
        np.testing.assert_allclose(others[name], value, rtol=1e-5, atol=1e-6)


def test_a_mean_is_weighed_by_the_targets_of_its_batch():
    x, y = clouds(9)
    y[[0, 4]] = IGNORE_INDEX
    whole, weights = stepped(of("mean"), [(x, y)])
    parts, others = stepped(of("mean"), pieces_of(x, y, (4, 5)))
    assert parts.tokens == whole.tokens == 7
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    for name, value in weights.items():
        np.testing.assert_allclose(others[name], value, rtol=1e-5, atol=1e-6)


def test_a_mean_of_no_target_adds_nothing():
    def nothing(model, x, y):
        return of("sum")(model, x, y) / counted(y)  # 0 / 0 where no target counts

    x, y = clouds(8)
    y[:4] = IGNORE_INDEX
    result, weights = stepped(nothing, pieces_of(x, y, (4, 4)))
    alone, others = stepped(nothing, [(x[4:], y[4:])])
    assert result.loss == pytest.approx(alone.loss)
    for name, value in weights.items():
        np.testing.assert_allclose(others[name], value, rtol=1e-6)
    assert stepped(nothing, [(x[:4], y[:4])])[0].skipped


class OwnLoss(Classifier):
    """Has a `loss` that returns a mean."""

    def loss(self, x, y):
        return functional.cross_entropy(self(x), y)


def test_a_model_s_own_loss():
    losses = []
    for kind in (OwnLoss, Classifier):
        pg.seed(0)
        model = kind()
        losses.append(TrainStep(model, SGD(model.parameters(), lr=0.1))([clouds(8)]).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_tokens():
    model = make_model()
    plain = TrainStep(model, None).loss_sum(batch(4))
    mean = TrainStep(model, None, loss=lambda model, x, y: model.loss(x, y)).loss_sum(batch(4))
    assert mean[1] == plain[1]
    assert mean[0] == pytest.approx(plain[0], rel=1e-6)


def of_tokens(model, x, y):
    return model.loss(x, y, reduction="sum"), count_targets


def test_a_loss_of_one_s_own_records_as_the_model_s():
    """The same dropout masks and bits."""
    found = []
    for loss in (None, of_tokens):
        model = make_model("gpt2")
        step = TrainStep(model, SGD(model.parameters(), lr=0.1), loss=loss)
        found.append(([step([batch(4, seed=i)]) for i in range(3)], model.state_dict()))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (lambda loss: 3.0, TypeError),
        (lambda loss: None, TypeError),
        (lambda loss: np.zeros(3), TypeError),
        (lambda loss: (loss, None), TypeError),
        (lambda loss: (loss, "8"), TypeError),
        (lambda loss: (loss, 1.5), TypeError),
        (lambda loss: (loss, -1), ValueError),
        (lambda loss: (loss, lambda batch: 1.5), TypeError),
    ],
)
def test_what_is_no_loss(result, error):
    with pytest.raises(error, match=r"TrainStep: .*(loss|count)"):
        stepped(lambda model, x, y: result(of("sum")(model, x, y)), [clouds(8)])


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, x, y: of("mean")(model, x, y).detach(),
        lambda model, x, y: ops.sqr(model(x).detach()).mean(),
        lambda model, x, y: x.sum(),
    ],
    ids=["the loss", "the logits", "no parameter"],
)
def test_a_loss_without_a_gradient_raises(loss):
    model = Classifier()
    trainer = Trainer(model, Batches(*clouds(8)), None, SGD(model, lr=0.1), loss=loss, steps=2)
    with pytest.raises(pg.GradientError, match=r"test_losses.py:\d+.*detach|model returned"):
        trainer.fit()


def test_a_loss_that_is_flat_has_a_gradient_of_zero():
    def loss(model, x, y):
        return ops.floor(model(x)).sum()

    result, _ = stepped(loss, [clouds(8)])
    assert result.grad_norm == 0.0


def test_a_loss_for_each_target_is_no_scalar():
    with pytest.raises(ValueError, match=r"scalar.*got shape \(8,\)"):
        stepped(of("none"), [clouds(8)])


def test_a_trainer_takes_a_mean():
    model, (x, y) = Classifier(), clouds(16)
    trainer = Trainer(
        model, Batches(x, y), Batches(x, y), SGD(model.parameters(), lr=0.1),
        loss=of("mean"), steps=2,
    )  # fmt: skip
    assert trainer.fit().validation.loss == pytest.approx(
        TrainStep(model, None).loss_sum((x, y))[0] / 16
    )


SQUARES = {
    "mean": lambda model, x, y: ops.sqr(model(x) - y).mean(),
    "sum": lambda model, x, y: (ops.sqr(model(x) - y).sum(dim=0).mean(), y.shape[0]),
}


@pytest.mark.parametrize("loss", SQUARES.values(), ids=SQUARES)
def test_rows_that_fill_up_a_batch_of_decimal_targets_do_not_count(loss):
    """18 rows in batches of 16 are 18 rows, and not 32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(18, 4)).astype(np.float32)
    y = rng.normal(size=(18, 3)).astype(np.float32)
    model = Classifier()
    found = evaluate(
        model,
        Loader(ArrayDataset(x, y), 16, shuffle=False, pad_last=True).once(),
        TrainStep(model, None, loss=loss),
    )
    assert found.tokens == 18
    said = TrainStep(model, None).logits((x, y))
    assert found.loss == pytest.approx(np.square(said - y).mean(), rel=1e-5)
