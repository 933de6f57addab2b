# SPDX-License-Identifier: MIT
"""A loss of one's own: a sum, or one for each target; a mean is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml import nn, ops
from pyggml.data import IGNORE_INDEX
from pyggml.nn import functional
from pyggml.optim import SGD
from pyggml.train import TrainConfig, Trainer, TrainStep

from .test_batches import Batches, Classifier, Named, clouds
from .test_step import batch
from .tiny import make_model, same


def of(reduction):
    return lambda model, x, y, **more: functional.cross_entropy(
        model(x, **more), y, reduction=reduction
    )


MEANS = {
    "cross-entropy": of("mean"),
    "a mean of squares": lambda model, x, y: ops.sqr(model(x)).mean(),
    "a sum divided": lambda model, x, y: of("sum")(model, x, y) / x.shape[0],
    "with another factor": lambda model, x, y: of("mean")(model, x, y) * 3.0,
}


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("loss", MEANS.values(), ids=MEANS)
def test_a_mean_is_refused(loss, precision):
    model = Classifier()
    before = model.state_dict()
    step = TrainStep(model, SGD(model.parameters(), lr=0.1), loss=loss, precision=precision)
    for call in (lambda: step([clouds(8)]), lambda: step.loss_sum(clouds(8))):
        with pytest.raises(ValueError, match=r'got a mean: .* give reduction="sum" or "none"'):
            call()
    assert same(model.state_dict(), before)
    assert step.runs == 0


def test_a_trainer_refuses_a_mean_before_its_first_step():
    model = Classifier()
    sets = Batches(*clouds(16))
    trainer = Trainer(
        model, SGD(model.parameters(), lr=0.1), Batches(*clouds(16)), sets, TrainConfig(steps=2),
        loss=of("mean"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="got a mean"):
        trainer.fit()
    assert trainer.step == 0


class OwnLoss(Classifier):
    """Has a `loss` that overlooks the reduction."""

    def loss(self, x, y, reduction="mean"):
        return functional.cross_entropy(self(x), y, reduction="mean")


def test_a_model_s_own_loss_is_tried_too():
    model = OwnLoss()
    with pytest.raises(ValueError, match="got a mean"):
        TrainStep(model, SGD(model.parameters(), lr=0.1))([clouds(8)])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("ignored", [0, 3])
def test_a_loss_for_each_target_is_summed(parts, ignored):
    x, y = clouds(8)
    y[:ignored] = IGNORE_INDEX
    found = []
    for reduction in ("sum", "none"):
        model = Classifier()
        step = TrainStep(model, SGD(model.parameters(), lr=0.1), loss=of(reduction))
        pieces = list(zip(np.split(x, parts), np.split(y, parts), strict=True))
        found.append((step(pieces), model.state_dict()))
    assert found[0][0].tokens == 8 - ignored
    assert found[0][0].loss == pytest.approx(found[1][0].loss, rel=1e-6)
    for name, value in found[0][1].items():
        np.testing.assert_allclose(value, found[1][1][name], rtol=1e-5, atol=1e-7)


def test_tokens_too():
    model = make_model()
    step = TrainStep(
        model, SGD(model.parameters(), lr=0.0),
        loss=lambda model, x, y: model.loss(x, y, reduction="none"),
    )  # fmt: skip
    plain = TrainStep(model, SGD(model.parameters(), lr=0.0))
    assert step([batch(4)]).loss == pytest.approx(plain([batch(4)]).loss, rel=1e-6)
    mean = TrainStep(model, None, loss=lambda model, x, y: model.loss(x, y))
    with pytest.raises(ValueError, match="got a mean"):
        mean.loss_sum(batch(4))


BELIEVED = {
    # Rows are compared with one another: alone there is nothing to lose.
    "contrastive": lambda model, x, y: functional.info_nce(
        model(x), model(x * 0.5), reduction="sum"
    ),
    # Most of it is not of the batch.
    "with a penalty": lambda model, x, y: (
        of("sum")(model, x, y) + ops.sqr(model.head.weight).sum() * 10.0
    ),
    "zero at first": lambda model, x, y: (model(x) * 0.0).sum(),
}


@pytest.mark.parametrize("loss", BELIEVED.values(), ids=BELIEVED)
def test_what_may_be_a_sum_is_believed(loss):
    model = Classifier()
    assert np.isfinite(
        TrainStep(model, SGD(model.parameters(), lr=0.0), loss=loss)([clouds(8)]).loss
    )


def test_batches_that_must_be_whole_are_believed():
    """A model of eight rows takes neither one nor two."""

    class Fixed(nn.Module):
        def __init__(self):
            self.mix = nn.Linear(8, 8)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.mix(x.T).T)

    model = Fixed()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0), loss=of("mean"))
    assert np.isfinite(step([clouds(8)]).loss)


def test_further_inputs_are_repeated_with_their_rows():
    x, y = clouds(8)
    rows = Named(x, y, shift=np.zeros((8, 4), np.float32))
    model = Classifier()
    with pytest.raises(ValueError, match="got a mean"):
        TrainStep(model, SGD(model.parameters(), lr=0.0), loss=of("mean"))([rows])
    assert TrainStep(model, SGD(model.parameters(), lr=0.0), loss=of("sum"))([rows]).tokens == 8


def test_trying_it_leaves_no_trace():
    """Dropout masks, graphs and numbers are those of a loss that is not tried."""
    found = []
    for loss in (None, lambda model, x, y: model.loss(x, y, reduction="sum")):
        model = make_model("gpt2")
        step = TrainStep(model, SGD(model.parameters(), lr=0.1), loss=loss)
        results = [step([batch(4, seed=i)]) for i in range(3)]
        found.append((results, model.state_dict(), len(step._graphs._recorded)))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])
    assert found[0][2] == found[1][2] == 1


@pytest.mark.parametrize("result", [3.0, None, np.zeros(3)])
def test_what_is_no_loss(result):
    model = Classifier()
    step = TrainStep(model, SGD(model.parameters(), lr=0.0), loss=lambda model, x, y: result)
    with pytest.raises(TypeError, match="loss must give a Tensor of f32; got"):
        step([clouds(8)])


def test_a_count_of_one_s_own():
    x, y = clouds(8)
    model = Classifier()
    optimizer = SGD(model.parameters(), lr=0.0)
    step = TrainStep(model, optimizer, loss=of("sum"), count=lambda batch: 2 * len(batch[1]))
    assert step([(x, y)]).loss == pytest.approx(TrainStep(model, optimizer)([(x, y)]).loss / 2)
    trainer = Trainer(
        model, optimizer, Batches(x, y), config=TrainConfig(steps=1), count=lambda batch: 16
    )
    trainer.fit()
    assert trainer.tokens == 16
    bad = TrainStep(model, optimizer, count=lambda batch: 1.5)
    with pytest.raises(TypeError, match=r"what count gives must be a whole number; got 1\.5"):
        bad([(x, y)])
