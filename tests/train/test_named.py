# SPDX-License-Identifier: MIT
"""Optimizers and schedules by name, and configurations in files."""

from __future__ import annotations

import datetime
import json

import pytest

from pyggml.optim import optimizers, schedule_functions
from pyggml.recipes import read_config, save_config
from pyggml.train import ConfigError, TrainConfig, TrainStep, make_optimizer

from .test_step import batch
from .tiny import make_model

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
