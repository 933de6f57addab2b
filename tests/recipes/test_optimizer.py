# SPDX-License-Identifier: MIT
"""The optimizer that a configuration names, with its rules for single parameters."""

from __future__ import annotations

import pytest

from pyggml.errors import ConfigError
from pyggml.optim import optimizers
from pyggml.recipes import make_optimizer
from pyggml.recipes.options import OptimizerOptions
from pyggml.train import TrainStep

from ..train.test_step import batch
from ..train.tiny import make_model


def make(model, lr=1e-3, **options):
    return make_optimizer(OptimizerOptions(**options), model, lr)


@pytest.mark.parametrize("name", optimizers())
def test_every_optimizer_by_name(name):
    model = make_model()
    decay = 0.0 if name == "lbfgs" else 0.25
    optimizer = make(model, optimizer=name, weight_decay=decay)
    assert type(optimizer) is optimizers()[name]
    assert optimizer.lr == 1e-3
    assert {group.weight_decay for group in optimizer.groups} == {0.0, decay}
    assert TrainStep(model, optimizer)([batch(4)]).grad_norm > 0


def test_options_of_an_optimizer():
    model = make_model()
    made = make(model, optimizer="sgd", optimizer_options=["momentum=0.9", "nesterov=true"])
    assert (made.momentum, made.nesterov) == (0.9, True)
    assert make(model, beta2=0.95).betas == (0.9, 0.95)
    made = make(model, optimizer_options={"betas": [0.8, 0.9], "eps": 1e-6})
    assert (made.betas, made.eps) == ((0.8, 0.9), 1e-6)
    assert make(model, optimizer="adam", optimizer_options=["amsgrad=true"]).amsgrad


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"optimizer_options": {"momentum": 0.9}}, "momentum"),
        ({"optimizer_options": {"betas": [0.9]}}, "`optimizer_options`.*betas"),
        ({"optimizer_options": {"eps": "small"}}, "`optimizer_options`.*eps"),
        ({"optimizer_options": {"amsgrad": 2}}, "amsgrad"),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentum": 2}},
            "`optimizer_options`.*momentum",
        ),
        ({"no_decay": "nothing"}, "`no_decay`"),
        ({"lr_scale": "nothing=2"}, "`lr_scale`"),
    ],
)
def test_options_that_do_not_suit_raise(fields, word):
    with pytest.raises(ConfigError, match=word):
        make(make_model(), **fields)


def by_name(optimizer):
    """Return decay and factor on the rate of every parameter."""
    return {
        name: (group.weight_decay, group.lr_scale)
        for group in optimizer.groups
        for name in group.names
    }


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_rules_for_single_parameters(name):
    model = make_model("llama")
    plain = by_name(make(model, optimizer=name))
    ruled = by_name(
        make(
            model,
            optimizer=name,
            no_decay="*.up_proj.*",
            lr_scale=("*.mlp.*=2", "*.up_proj.*=3"),
            layer_lr_decay=0.5,
        )
    )
    assert ruled.keys() == plain.keys()
    for parameter, (decay, scale) in ruled.items():
        embeds, up = "embed" in parameter, "up_proj" in parameter
        # Rules for others leave embeddings without decay.
        assert decay == (0.0 if embeds or up else plain[parameter][0]), parameter
        below = 3 if embeds else 2 if ".0." in parameter else 1 if ".1." in parameter else 0
        factor = 6 if up else 2 if ".mlp." in parameter else 1
        assert scale == pytest.approx(0.5**below * factor), parameter
