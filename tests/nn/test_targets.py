# SPDX-License-Identifier: MIT
"""Targets that are no classes and no probabilities: an error where they are known, else NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn import functional as F
from pyggml.optim import SGD
from pyggml.train import Trainer, TrainStep

LOGITS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
Loss = Callable[..., pg.Tensor]

# The name of the targets, and the function.
OF_CLASSES: dict[str, tuple[str, Loss]] = {
    "cross_entropy": ("targets", F.cross_entropy),
    "smoothed": ("targets", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
    "weighted": ("targets", lambda x, y: F.cross_entropy(x, y, pg.ones(4))),
    "nll_loss": ("target", lambda x, y: F.nll_loss(x.log_softmax(-1), y)),
    "linear": ("targets", lambda x, y: F.linear_cross_entropy(x, pg.ones(4, 4), y)),
    "one_hot": ("ids", lambda x, y: F.one_hot(y, 4).sum()),
    "module": ("target", lambda x, y: nn.NLLLoss()(x.log_softmax(-1), y)),
}


def computed(numbers: np.ndarray | list[int]) -> pg.Tensor:
    """Return class numbers that only a graph knows."""
    return (pg.tensor(np.asarray(numbers, np.float32)) * 1.0).astype("i32")


@pytest.mark.parametrize(("name", "loss"), OF_CLASSES.values(), ids=OF_CLASSES)
@pytest.mark.parametrize("wrong", [4, -1, 2**30, -(2**31)])
def test_a_class_number_out_of_range(name: str, loss: Loss, wrong: int) -> None:
    x = pg.tensor(LOGITS)
    for _ in range(3):
        with pytest.raises(ValueError, match=rf"{name} must hold class .* got {wrong} at \(1,\)"):
            loss(x, pg.tensor([0, wrong, 3]))
        assert np.isfinite(loss(x, pg.tensor([0, 2, 3])).item())
    assert np.isnan(loss(x, computed([0, wrong, 3])).item())
    assert loss(x, computed([0, 2, 3])).item() == loss(x, pg.tensor([0, 2, 3])).item()


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_numbers_that_do_not_count(loss: Loss) -> None:
    x = pg.tensor(LOGITS).log_softmax(-1)
    want = loss(x[:2], pg.tensor([1, 3])).item()
    for make in (pg.tensor, computed):
        assert loss(x, make([1, 3, -100])).item() == pytest.approx(want, rel=1e-6)
        assert loss(x, make([1, 3, 99]), ignore_index=99).item() == pytest.approx(want, rel=1e-6)
    with pytest.raises(ValueError, match="or ignore_index=99; got -100"):
        loss(x, pg.tensor([1, 99, -100]), ignore_index=99)
    assert np.isnan(loss(x, computed([1, 99, -100]), ignore_index=99).item())


def test_a_part_without_the_wrong_number_is_right() -> None:
    x, y = pg.tensor(LOGITS), pg.tensor([[9, 0, 1, 3]])
    for _ in range(3):
        assert np.isfinite(F.cross_entropy(x, y[:, 1:].reshape(-1)).item())
        with pytest.raises(ValueError, match="got 9"):
            F.cross_entropy(x, y[:, :3].reshape(-1))


def test_numbers_that_are_written_later_are_looked_at_again() -> None:
    x, y = pg.tensor(LOGITS), pg.tensor([0, 1, 2])
    F.nll_loss(x, y)
    y.copy_([0, 1, 4])
    with pytest.raises(ValueError, match="got 4"):
        F.nll_loss(x, y)


def test_the_gradient_of_a_loss_with_a_wrong_class_is_no_plausible_one() -> None:
    x = pg.tensor(LOGITS, requires_grad=True)
    F.nll_loss(x.log_softmax(-1), computed([0, 7, 1])).backward()
    assert not np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("wrong", [1.5, -0.25])
def test_probabilities_out_of_range(wrong: float) -> None:
    fine, bad = pg.tensor([0.5, 0.0, 1.0]), pg.tensor([0.5, wrong, 1.0])
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"x must be from 0 to 1; got {wrong} at \(1,\)"):
            F.binary_cross_entropy(bad, fine)
        with pytest.raises(ValueError, match=r"target must be from 0 to 1"):
            nn.BCELoss()(fine, bad)
        for x, target in ((bad * 1.0, fine), (fine, bad * 1.0), (bad * 1.0, fine * 1.0)):
            rows = F.binary_cross_entropy(x, target, reduction="none").numpy()
            assert np.isnan(rows[1])
            assert np.isfinite(rows[[0, 2]]).all()
            assert np.isnan(F.binary_cross_entropy(x, target).item())
    assert F.binary_cross_entropy(fine * 1.0, fine).item() == (
        F.binary_cross_entropy(fine, fine).item()
    )


def test_batches_are_looked_at_where_they_enter() -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    before = [p.numpy() for p in model.parameters()]
    x, y = np.concatenate([LOGITS, LOGITS[:1]]), np.arange(4, dtype=np.int32)
    step = TrainStep(model, SGD(model, lr=0.1))
    with pytest.raises(ValueError, match=r"targets must hold class numbers from 0 to 2.* got 3"):
        step([(x, y)])
    trainer = Trainer(model, pg.data.ArrayDataset(x, y), batch_size=4, steps=2, lr=0.1)
    with pytest.raises(ValueError, match="got 3"):
        trainer.fit(progress=False)
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), old)
    for loss in (F.cross_entropy, F.nll_loss):
        fn = pg.compile(loss)
        assert np.isfinite(fn(LOGITS, np.array([0, 3, -100])).item())
        with pytest.raises(ValueError, match="got 4"):
            fn(LOGITS, np.array([0, 4, 1]))


def test_a_number_of_numpy_that_does_not_count() -> None:
    x = pg.tensor(LOGITS)
    ignored = np.int64(-1)
    want = F.cross_entropy(x[:2], pg.tensor([1, 3])).item()
    found = F.cross_entropy(x, pg.tensor([1, 3, -1]), ignore_index=ignored)  # type: ignore[arg-type]
    assert found.item() == pytest.approx(want, rel=1e-6)
    with pytest.raises(ValueError, match="or ignore_index=-1; got 9"):
        F.cross_entropy(x, pg.tensor([1, 9, -1]), ignore_index=ignored)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_the_number_of_classes_of_no_number(wrong: float) -> None:
    with pytest.raises(ValueError, match="one_hot: ids must be a finite number; got"):
        F.one_hot(pg.tensor([0.0, wrong]))
