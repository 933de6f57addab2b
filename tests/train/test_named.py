# SPDX-License-Identifier: MIT
"""Optimizers and schedules by name, and configurations in files."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pytest

from pyggml import nn
from pyggml.optim import SGD, ReduceOnPlateau, optimizers, schedule_functions, schedules
from pyggml.recipes import read_config, save_config
from pyggml.train import ConfigError, TrainConfig, Trainer, TrainStep, make_optimizer
from pyggml.train.named import make_loss
from pyggml.train.schedule import check_rates, default_schedule

from .test_fit import Scripted
from .test_step import batch
from .tiny import make_model, make_trainer, same, tokens

SCHEDULES = [*schedule_functions(), "plateau"]


@pytest.mark.parametrize("name", optimizers())
def test_every_optimizer_by_name(name):
    model = make_model()
    decay = 0.0 if name == "lbfgs" else 0.25
    config = TrainConfig(optimizer=name, lr=1e-3, weight_decay=decay, clip=0.0)
    optimizer = make_optimizer(config, model)
    assert type(optimizer) is optimizers()[name]
    assert optimizer.lr == 1e-3
    assert {group.weight_decay for group in optimizer.groups} == {0.0, decay}
    assert TrainStep(model, optimizer)([batch(4)]).grad_norm > 0


def test_options_of_an_optimizer():
    model = make_model()
    options = ["momentum=0.9", "nesterov=true"]
    made = make_optimizer(TrainConfig(optimizer="sgd", optimizer_options=options), model)
    assert (made.momentum, made.nesterov) == (0.9, True)
    made = make_optimizer(TrainConfig(beta2=0.95), model)
    assert made.betas == (0.9, 0.95)
    options = {"betas": [0.8, 0.9], "eps": 1e-6}
    made = make_optimizer(TrainConfig(optimizer_options=options), model)
    assert (made.betas, made.eps) == ((0.8, 0.9), 1e-6)
    for name in ("adam", "adamw"):
        config = TrainConfig(optimizer=name, optimizer_options=["amsgrad=true"])
        assert make_optimizer(config, model).amsgrad
    with pytest.raises(ConfigError, match="amsgrad must be True or False; got 2"):
        make_optimizer(TrainConfig(optimizer_options=["amsgrad=2"]), model)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_by_name(name):
    config = TrainConfig(schedule=name, lr=0.5, min_lr=0.05, warmup=4)
    rate = default_schedule(config, 40)
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
    config = TrainConfig(
        schedule="polynomial", lr=1.0, min_lr=0.0, warmup=0, schedule_options=["power=2", "steps=4"]
    )
    assert [default_schedule(config, 99)(s) for s in (0, 2, 4)] == [1.0, 0.25, 0.0]


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
        trainer = make_trainer(folder, steps=12, eval_every=2, save_every=2, keep=9)
        inner = ReduceOnPlateau(0.01, factor=0.5, patience=1)
        return inner, Trainer(
            trainer.model,
            trainer.optimizer,
            trainer.loader,
            tokens(60),
            trainer.config,
            checkpoint_dir=folder,
            schedule=around(inner),
        )

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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "linear", "schedule_options": {"end": -0.001}}, "at step .*gives -"),
        ({"schedule": "one_cycle", "schedule_options": {"end_divisor": 1e-300}}, r"gives .*e\+296"),
    ],
)
def test_a_rate_that_cannot_be_is_refused_before_the_training(options, words):
    with pytest.raises(ConfigError, match=rf"--schedule {options['schedule']}: .*{words}"):
        make_trainer(steps=40, lr=1.0 if "one" in options["schedule"] else 1e-3, **options)


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
        Trainer(base.model, base.optimizer, base.loader, tokens(60), base.config, schedule=schedule)


def test_a_long_schedule_is_looked_at_in_places():
    seen = []
    check_rates("", lambda step: seen.append(step) or 0.1, 10**9)
    assert len(seen) <= 10**5
    assert seen[0] == 0
    assert seen[-1] == 10**9 - 1
    assert all(isinstance(step, int) for step in seen)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimizer": "adam2"}, ["--optimizer must be one of", "adamw", "muon", "'adam2'"]),
        ({"schedule": "fast"}, ["--schedule must be one of", "one_cycle", "plateau", "'fast'"]),
        ({"optimizer_options": {"lr": 1}}, ["must not hold lr", "give --lr"]),
        ({"optimizer_options": ["momentum"]}, ["NAME=VALUE", "momentum=0.9"]),
        ({"optimizer_options": 3}, ["NAME=VALUE", "3"]),
        ({"schedule_options": {"a b": 1}}, ["NAME=VALUE", "a b"]),
        ({"schedule_options": {"power": None}}, ["numbers, texts and lists", "None"]),
        ({"optimizer": "lbfgs"}, ["--optimizer lbfgs searches", "--clip 1", "--clip 0"]),
        (
            {"optimizer": "lbfgs", "clip": 0.0, "precision": "f16"},
            ["--optimizer lbfgs searches", "--precision f32"],
        ),
        ({"schedule": "plateau", "val_fraction": 0.0}, ["plateau needs a validation loss"]),
    ],
)
def test_bad_names_and_options(fields, words):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**fields)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimizer_options": {"momentum": 0.9}}, ["options of AdamW", "betas", "got momentum"]),
        ({"optimizer_options": {"betas": [0.9]}}, ["--optimizer adamw"]),
        ({"optimizer_options": {"eps": "small"}}, ["--optimizer adamw"]),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentum": 2}},
            ["--optimizer sgd", "momentum"],
        ),
    ],
)
def test_options_that_do_not_suit_the_optimizer(fields, words):
    with pytest.raises(ConfigError) as caught:
        make_optimizer(TrainConfig(**fields), make_model())
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"power": 0}, {"speed": 2}, {"steps": "x"}, {"power": [1]}], ids=str
)
def test_options_that_do_not_suit_the_schedule(options):
    config = TrainConfig(schedule="polynomial", schedule_options=options)
    with pytest.raises(ConfigError, match="--schedule polynomial: "):
        default_schedule(config, 10)


FULL = TrainConfig(
    text=('a "b"\\c.txt', "ü\n\x7f\x01.txt"), preset="tiny", steps=7, lr=1e-5, weight_decay=1.0,
    checkpointing=3, memory_limit="2GiB", clip=1e22, scores=("top5",), wandb="p", keep_best=False,
    optimizer="sgd", optimizer_options={"momentum": 0.9, "nesterov": True}, min_lr=0.0,
    schedule="polynomial", schedule_options={"power": 2},
)  # fmt: skip


@pytest.mark.parametrize("config", [TrainConfig(), FULL])
def test_a_file_gives_the_configuration_back(tmp_path, config):
    save_config(config, tmp_path / "c.toml")
    assert TrainConfig.from_dict(read_config(tmp_path / "c.toml")) == config
    # A run's own file, too.
    (tmp_path / "config.json").write_text(json.dumps({"train": config.to_dict(), "arch": "x"}))
    assert TrainConfig.from_dict(read_config(tmp_path / "config.json")) == config


def test_names_may_have_dashes(tmp_path):
    (tmp_path / "c.toml").write_text("batch-size = 3\n[optimizer-options]\neps = 1e-6\n")
    found = read_config(tmp_path / "c.toml")
    assert found == {"batch_size": 3, "optimizer_options": {"eps": 1e-6}}


@pytest.mark.parametrize("name", TrainConfig.__dataclass_fields__)
def test_whatever_a_file_holds_is_taken_or_refused(name):
    day = datetime.date(1979, 5, 27)
    for value in (
        None,
        True,
        0,
        1,
        -1,
        2**70,
        1.5,
        float("nan"),
        "x",
        "",
        [],
        [1],
        {},
        {"a": 1},
        day,
    ):
        try:
            config = TrainConfig.from_dict({name: value})
        except ConfigError as error:
            assert str(error)  # noqa: PT017
        else:
            assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.toml", None, "cannot be read"),
        ("c.toml", b"\xff", "not UTF-8"),
        ("c.toml", b"steps =", "not a TOML file"),
        ("c.toml", b"stepz = 3", "stepz"),
        ("c.toml", b"steps = 0", "--steps must be at least 1"),
        ("c.toml", b"text = 3", "--text must be a list"),
        ("c.toml", b"optimizer = 3", "--optimizer must be one of"),
        ("c.toml", b"optimizer = []", "--optimizer must be one of"),
        ("c.toml", b"checkpointing = []", "--checkpointing must be"),
        ("c.toml", b"lr = 1979-05-27", "--lr must be a number"),
        ("c.json", b"[1]", "must hold options by name"),
        ("c.json", b"{", "not a JSON file"),
        ("c.json", b'{"steps": ' + b"3" * 5000 + b"}", "not a JSON file"),
        ("c.toml", b"steps = " + b"3" * 5000, "not a TOML file"),
        ("c.json", b'{"lr": "x"}', "--lr must be a number"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def by_name(optimizer):
    """Decay and factor on the rate of every parameter."""
    return {
        name: (group.weight_decay, group.lr_scale)
        for group in optimizer.groups
        for name in group.names
    }


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_rules_for_single_parameters(name):
    model = make_model("llama")
    plain = by_name(make_optimizer(TrainConfig(optimizer=name), model))
    config = TrainConfig(
        optimizer=name, no_decay="*embed*", lr_scale=("*.mlp.*=2", "*.up_proj.*=3"),
        layer_lr_decay=0.5,
    )  # fmt: skip
    ruled = by_name(make_optimizer(config, model))
    assert ruled.keys() == plain.keys()
    for parameter, (decay, scale) in ruled.items():
        embeds = "embed" in parameter
        assert decay == (0.0 if embeds else plain[parameter][0]), parameter
        below = 3 if embeds else 2 if ".0." in parameter else 1 if ".1." in parameter else 0
        factor = 6 if "up_proj" in parameter else 2 if ".mlp." in parameter else 1
        assert scale == pytest.approx(0.5**below * factor), parameter
    for wrong in ({"no_decay": "nothing"}, {"lr_scale": "nothing=2"}):
        with pytest.raises(ConfigError, match="must match the name of a parameter; 'nothing'"):
            make_optimizer(TrainConfig(optimizer=name, **wrong), model)
    with pytest.raises(ConfigError, match=r"--optimizer lbfgs .*: give --layer-lr-decay 1"):
        TrainConfig(optimizer="lbfgs", clip=0.0, weight_decay=0.0, layer_lr_decay=0.5)


def test_smoothed_labels_while_training_only():
    smooth, plain = (make_trainer(label_smoothing=share, lr=1e-9) for share in (0.1, 0.0))
    x, y = batch(4)
    y = np.maximum(y, 0)  # all targets count
    found = smooth._train_step([(x, y)]).loss
    logits = plain._train_step.logits((x, y)).astype(np.float64)
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log, y[..., None], -1)[..., 0]
    assert found == pytest.approx(-(0.9 * picked + 0.1 * log.mean(-1)).mean(), rel=1e-5)
    assert plain._train_step([(x, y)]).loss == pytest.approx(-picked.mean(), rel=1e-5)
    # What an evaluation measures is the loss of the text.
    pair = [trainer._train_step.loss_sum((x, y)) for trainer in (smooth, plain)]
    assert pair[0] == pytest.approx(pair[1], rel=1e-6)


def test_smoothed_labels_need_logits():
    class Own(nn.Module):
        def __init__(self):
            self.head = nn.Linear(2, 2)

        def loss(self, x, y, reduction):
            return self.head(x).sum()

    config = TrainConfig(label_smoothing=0.1)
    with pytest.raises(ConfigError, match=r"loss of its own.*Own"):
        make_loss(config, Own())
    head = nn.Linear(3, 2)
    step = TrainStep(head, SGD(head.parameters(), lr=0.1), loss=make_loss(config, head))
    x = np.ones((4, 3), np.float32)
    assert step([(x, np.arange(4) % 2)]).loss > 0
    assert step([(x, np.full((4, 2), 0.5, np.float32))]).loss > 0
