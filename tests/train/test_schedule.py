# SPDX-License-Identifier: MIT
"""Schedules of a Trainer, by name or given; smoothed labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pyggml import nn
from pyggml.errors import ConfigError
from pyggml.optim import SGD, ReduceOnPlateau, schedule_functions, schedules
from pyggml.train import Trainer, TrainerOptions, TrainStep
from pyggml.train.losses import smoothed_loss
from pyggml.train.schedule import check_rates, make_schedule

from .test_fit import Scripted
from .test_step import batch
from .tiny import make_trainer, same, tokens

SCHEDULES = [*schedule_functions(), "plateau"]


def test_default_warmup_and_floor():
    rate = make_schedule(TrainerOptions(min_lr=0.1, warmup=4), 1.0, 20)
    assert [rate(s) for s in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rate(19) < 0.12
    assert rate(20) == pytest.approx(0.1)
    assert make_schedule(TrainerOptions(), 1.0, 10_000)(99) < 1.0


@pytest.mark.parametrize(
    "options", [{"epochs": 1, "steps": None, "warmup": 50}, {"min_lr": 1.0}], ids=str
)
def test_rates_and_lengths_that_do_not_agree(options):
    with pytest.raises(ConfigError, match=r"warmup|min_lr"):
        make_trainer(**options)


@pytest.mark.parametrize("name", ["lr", "min_lr", "warmup"])
def test_options_of_named_schedules_beside_a_function(name):
    base = make_trainer()
    with pytest.raises(ValueError, match=name):
        Trainer(base.model, base.loader, schedule=lambda step: 0.1, steps=2, **{name: 1})


def test_a_schedule_by_name_beside_a_function():
    base, options = make_trainer(), TrainerOptions(schedule="warmup_cosine", steps=2)
    with pytest.raises(ConfigError, match=r"`schedule`.*function"):
        Trainer(base.model, base.loader, schedule=lambda step: 0.1, options=options)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_by_name(name):
    falls = name not in ("constant", "inverse_sqrt", "one_cycle")
    given = {"min_lr": 0.05} if falls else {}
    given |= {} if name == "one_cycle" else {"warmup": 4}
    rate = make_schedule(TrainerOptions(schedule=name, **given), 0.5, 40)
    values = [rate(step) for step in range(41)]
    assert max(values) <= 0.5 + 1e-12
    assert values[0] < 0.5
    if name != "one_cycle":
        assert values[4] == pytest.approx(0.5)
        assert values[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    if name in ("linear", "cosine", "polynomial", "warmup_cosine", "warmup_stable_decay"):
        assert values[40] == pytest.approx(0.05)
    assert all(value > 0 for value in values)


def test_options_of_a_schedule():
    options = TrainerOptions(
        schedule="polynomial", min_lr=0.0, warmup=0, schedule_options=["power=2", "steps=4"]
    )
    assert [make_schedule(options, 1.0, 99)(s) for s in (0, 2, 4)] == [1.0, 0.25, 0.0]


def test_a_plateau_reduces_and_is_restored(tmp_path, monkeypatch):
    Scripted(monkeypatch, [2.0] * 99)
    options = {
        "steps": 12, "eval_every": 2, "save_every": 4, "schedule": "plateau", "warmup": 0,
        "schedule_options": {"patience": 1, "factor": 0.5}, "lr": 0.01, "min_lr": 0.0,
    }  # fmt: skip
    whole = make_trainer(tmp_path / "a", **options)
    assert isinstance(whole.schedule, ReduceOnPlateau)
    whole.fit()
    # The best is that of step 2; 4 and 6 bring nothing, nor do 8 and 10.
    assert [whole.schedule.scale, whole.optimizer.lr] == [0.25, 0.0025]
    again = make_trainer(tmp_path / "a", **{**options, "keep": 9})
    assert again.resume(tmp_path / "a" / "checkpoints" / "step-000008") == 8
    assert again.schedule.scale == 0.5
    again.fit()
    assert again.schedule.state_dict() == whole.schedule.state_dict()


# Rows: a schedule around a plateau, and the rates of the last steps below.
AROUND = {
    "warm-up": lambda one: schedules.warmup(one, 3),
    "joined": lambda one: schedules.join([schedules.constant(0.02), one], [3]),
    "a plateau": lambda one: ReduceOnPlateau(schedules.warmup(one, 3), patience=99),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_plateau_within_a_schedule_reduces_and_is_restored(tmp_path, monkeypatch, around):
    def make(folder):
        inner = ReduceOnPlateau(0.01, factor=0.5, patience=1)
        return inner, make_trainer(
            folder=folder, val=tokens(60), steps=12, eval_every=2, save_every=2, keep=9,
            schedule=around(inner),
        )  # fmt: skip

    Scripted(monkeypatch, [2.0] * 99)
    inner, whole = make(tmp_path / "a")
    whole.fit()
    # It begins at step 3: the best is that of step 4; 6 and 8 bring nothing, nor do 10 and 12.
    assert [inner.scale, whole.optimizer.lr] == [0.25, 0.005]
    again, cut = make(tmp_path / "b")
    assert cut.resume(tmp_path / "a" / "step-000010") == 10
    assert again.scale == 0.5
    cut.fit()
    assert cut.schedule.state_dict() == whole.schedule.state_dict()
    assert same(cut.model.state_dict(), whole.model.state_dict())


def test_a_rate_that_cannot_be_raises_before_the_training():
    options = {"schedule": "one_cycle", "schedule_options": {"end_divisor": 1e-300}}
    with pytest.raises(ConfigError, match="`schedule`=one_cycle"):
        make_trainer(steps=40, lr=1.0, **options)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda step: 0.1 - 0.01 * step, "at step 11 of 12 is none: it gives -0.0"),
        (lambda step: math.nan if step == 7 else 0.1, "at step 7 of 12 is none: it gives nan"),
        (lambda step: "fast", "at step 0 of 12 is none: it gives 'fast'"),
        (
            lambda step: [0.1, 0.2][step],
            "at step 2 of 12 is none: it raises IndexError: list index",
        ),
    ],
)
def test_a_schedule_that_fails_later_is_refused_before_the_training(schedule, words):
    base = make_trainer()
    with pytest.raises((ValueError, TypeError), match=words):
        Trainer(base.model, base.loader, tokens(60), steps=12, schedule=schedule)


def test_a_long_schedule_is_looked_at_in_places():
    seen = []
    check_rates("", lambda step: seen.append(step) or 0.1, 10**9)
    assert len(seen) <= 10**5
    assert seen[0] == 0
    assert seen[-1] == 10**9 - 1
    assert all(isinstance(step, int) for step in seen)


@pytest.mark.parametrize("options", [{"power": 0}, {"steps": "x"}, {"power": [1]}], ids=str)
def test_options_that_do_not_suit_the_schedule(options):
    given = TrainerOptions(schedule="polynomial", schedule_options=options)
    with pytest.raises(
        ConfigError, match=f"`schedule_options` of polynomial: {next(iter(options))}"
    ):
        make_schedule(given, 1e-3, 10)


@pytest.mark.parametrize("schedule", ["polynomial", "constant", "plateau"])
def test_an_argument_that_the_schedule_does_not_take(schedule):
    with pytest.raises(ConfigError, match=r"`schedule_options` .*speed"):
        TrainerOptions(schedule=schedule, schedule_options={"speed": 2})


@pytest.mark.parametrize(("name", "own"), [("start", "lr"), ("end", "min_lr")])
def test_an_argument_of_a_schedule_that_is_an_option(name, own):
    with pytest.raises(ConfigError, match=rf"`schedule_options` .*{name}.*`{own}`"):
        TrainerOptions(schedule="linear", schedule_options={name: 0.1})


def test_smoothed_labels_while_training_only():
    smooth, plain = (make_trainer(label_smoothing=share, lr=1e-9) for share in (0.1, 0.0))
    x, y = batch(4)
    y = np.maximum(y, 0)  # all targets count
    found = smooth.train_step([(x, y)]).loss
    logits = plain.train_step.logits((x, y)).astype(np.float64)
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log, y[..., None], -1)[..., 0]
    assert found == pytest.approx(-(0.9 * picked + 0.1 * log.mean(-1)).mean(), rel=1e-5)
    assert plain.train_step([(x, y)]).loss == pytest.approx(-picked.mean(), rel=1e-5)
    # What an evaluation measures is the loss of the text.
    pair = [trainer.train_step.loss_sum((x, y)) for trainer in (smooth, plain)]
    assert pair[0] == pytest.approx(pair[1], rel=1e-6)


def test_smoothed_labels_need_logits():
    class Own(nn.Module):
        def __init__(self):
            self.head = nn.Linear(2, 2)

        def loss(self, x, y, reduction):
            return self.head(x).sum()

    with pytest.raises(ConfigError, match=r"loss of its own.*Own"):
        smoothed_loss(Own(), 0.1)
    head = nn.Linear(3, 2)
    step = TrainStep(head, SGD(head.parameters(), lr=0.1), loss=smoothed_loss(head, 0.1))
    x = np.ones((4, 3), np.float32)
    assert step([(x, np.arange(4) % 2)]).loss > 0
    assert step([(x, np.full((4, 2), 0.5, np.float32))]).loss > 0


def test_label_smoothing_beside_a_loss_that_does_not_read_it():
    with pytest.raises(ConfigError, match="label_smoothing"):
        make_trainer(label_smoothing=0.1, loss=lambda model, x, y: model.loss(x, y))
