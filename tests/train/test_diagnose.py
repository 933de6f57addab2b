# SPDX-License-Identifier: MIT
"""What is said of numbers that are not finite: the batch first, then the weights, the gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml import nn, ops
from pyggml.data import Batch
from pyggml.optim import LBFGS, SGD, AdamW
from pyggml.optim.clip import NORM_MAX
from pyggml.train import NonFiniteError, Trainer, TrainingError, TrainStep
from pyggml.train.finite import find_class, find_input

from .test_batches import Batches, Classifier, Named, clouds
from .test_step import batch
from .tiny import make_model, make_trainer, same

RATES = ("`lr`", "`clip`", "`warmup`")


def squares(model, x, y):
    return ops.sqr(model(x) - y).sum()


def trained(*arrays, loss=None, fused_update=False, **options):
    """The message of a run that cannot go on."""
    model = Classifier()
    before = model.state_dict()
    optimizer = SGD(model.parameters(), lr=0.1, fused_update=fused_update)
    trainer = Trainer(model, Batches(*arrays), None, optimizer, loss=loss, steps=3, **options)
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    assert same(model.state_dict(), before)
    return str(caught.value)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_batch_that_holds_it_is_named_and_nothing_else_is_blamed(bad, fused):
    x, y = clouds(8)
    x[3, 2] = x[5, 0] = bad
    options = {"fused_update": True, "clip": 0.0} if fused else {}
    message = trained(x, y, **options)
    assert f"x[3, 2] is {bad} (2 of 32 such)" in message
    assert "mend the data" in message
    for word in RATES:
        assert word not in message


def test_targets_and_further_inputs_are_looked_at_too():
    x, _ = clouds(8)
    y = np.zeros((8, 3), np.float32)
    y[7, 1] = np.nan
    assert "y[7, 1] is nan (1 of 24 such)" in trained(x, y, loss=squares)
    shift = np.zeros((8, 4), np.float32)
    shift[0, 3] = -np.inf
    assert find_input([Batch(x, y * 0 + 1, shift=shift)]).startswith("y[7, 1]")
    assert find_input([Named(x, x, shift=shift)]) == "shift[0, 3] is -inf (1 of 32 such)"


def test_the_batch_of_a_step_is_counted():
    model = Classifier()
    good, bad = clouds(8), clouds(8)
    bad[0][1, 1] = np.nan
    with pytest.raises(NonFiniteError, match=r"x\[1, 1\] is nan \(1 of 32 such\) in batch 2 of 3"):
        TrainStep(model, SGD(model.parameters(), lr=0.1))([good, bad, bad])
    with pytest.raises(NonFiniteError, match=r"x\[1, 1\] is nan") as caught:
        TrainStep(model, LBFGS(model.parameters()))([good, bad])
    assert caught.value.source == "inputs"


def test_loss_scaling_skips_no_bad_batch():
    """The loss is finite here, as relu makes 0 of NaN: only the gradients tell."""
    model = Classifier()
    x, y = clouds(8)
    x[1, 1] = np.nan
    step = TrainStep(model, SGD(model.parameters(), lr=0.1), precision="f16")
    with pytest.raises(NonFiniteError, match=r"x\[1, 1\] is nan"):
        step([(x, y)])
    assert (step.scaler.scale, step.scaler.skipped) == (2.0**16, 0)


@pytest.mark.parametrize("target", [3, -1])
def test_a_class_that_is_none(target):
    x, y = clouds(8)
    y[4] = target
    model = Classifier()
    before = model.state_dict()
    trainer = Trainer(model, Batches(x, y), None, SGD(model, lr=0.1), steps=3)
    with pytest.raises(ValueError, match=rf"class numbers from 0 to 2.* got {target} at \(4,\)"):
        trainer.fit()
    assert same(model.state_dict(), before)
    assert find_class([(x, y)], 7 if target == 3 else 3) == ("" if target == 3 else message_of(y))


def message_of(y):
    return f"y[4] is {y[4]} (1 of 8 such), and the classes are 0 to 2"


def test_weights_are_named_before_gradients():
    trainer = make_trainer(steps=3)
    name, weight = list(trainer.model.named_parameters())[2]
    array = weight.numpy()
    array.reshape(-1)[0] = np.inf
    weight.copy_(array)
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    index = ", ".join("0" * weight.ndim)
    assert f"the parameter {name}[{index}] is inf (1 of {weight.numel()} such)" in str(caught.value)
    assert "go back to a checkpoint" in str(caught.value)


def ones(*shape):
    return np.ones(shape, np.float32), np.zeros((shape[0], 1), np.float32)


def rooted(model, x, y):
    """The root's slope at 0 is infinite; its value is not."""
    return ops.sqrt(ops.sqr(model.weight) * 0.0).sum() + squares(model, x, y)


def test_a_gradient_that_is_infinite_is_named():
    model = nn.Linear(2, 1)
    with pytest.raises(NonFiniteError) as caught:
        TrainStep(model, SGD(model.parameters(), lr=0.1), loss=rooted)([ones(2, 2)])
    assert "the gradient of weight[0, 0] is nan" in str(caught.value)
    assert caught.value.source == "gradients"


def steep(slope):
    """A loss whose gradient is a chosen number for each of four weights."""

    def loss(model, x, y):
        return model.weight.sum() * slope + squares(model, x, y) * 0.0

    return loss


def long_step(slope, **options):
    model = nn.Linear(4, 1, bias=False)
    step = TrainStep(model, AdamW(model.parameters(), lr=0.1), loss=steep(slope), **options)
    return model, step, [ones(2, 4)]


@pytest.mark.parametrize("slope", [1e15, 1e20, 1e30])
def test_the_norm_of_large_gradients_is_right(slope):
    model, step, batches = long_step(slope, clip=1.0)
    before = model.weight.numpy()
    result = step(batches)
    assert result.grad_norm == pytest.approx(2 * slope, rel=1e-6)
    # Clipped to 1, each of the four is a half: AdamW's first step is as long as its rate.
    np.testing.assert_allclose(before - model.weight.numpy(), 0.1, rtol=2e-2)
    moments = [v for k, v in step.optimizer.state_dict().items() if k.endswith((".m", ".v"))]
    assert moments
    assert all(np.isfinite(value).all() for value in moments)


@pytest.mark.parametrize("slope", [1e20, 1e30])
def test_a_norm_whose_square_is_too_large_is_told_as_what_it_is(slope):
    model, step, batches = long_step(slope)
    before, state = model.state_dict(), step.optimizer.state_dict()
    with pytest.raises(NonFiniteError) as caught:
        step(batches)
    assert f"at most {NORM_MAX:.2g}, whose square f32 holds" in str(caught.value)
    assert f"got {2 * slope:g}" in str(caught.value)
    assert same(model.state_dict(), before)
    assert same(step.optimizer.state_dict(), state)


def test_large_gradients_that_are_clipped_by_value():
    model, step, batches = long_step(1e30, clip_value=0.5)
    before = model.weight.numpy()
    assert step(batches).grad_norm == pytest.approx(2e30, rel=1e-6)
    np.testing.assert_allclose(before - model.weight.numpy(), 0.1, rtol=2e-2)


def test_the_sum_of_squares_of_a_fused_update():
    model = nn.Linear(4, 1, bias=False)
    optimizer = SGD(model.parameters(), lr=0.0, fused_update=True)
    step = TrainStep(model, optimizer, loss=steep(1e30))
    with pytest.raises(NonFiniteError, match="sum of their squares is inf") as caught:
        step([ones(2, 4)])
    assert caught.value.spoiled


def test_good_batches_are_not_blamed():
    model = make_model()
    last = model.parameters()[-1]
    last.copy_(np.full(last.shape, 1e38, np.float32))
    with pytest.raises(NonFiniteError, match="finite") as caught:
        TrainStep(model, AdamW(model.parameters()))([batch(4)])
    assert caught.value.source in ("", "gradients")
