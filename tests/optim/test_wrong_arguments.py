# SPDX-License-Identifier: MIT
"""Whatever is passed to pyggml.optim: it works, or an exception names function and argument."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.optim.schedules import schedules


def weight():
    return nn.Parameter([[1.0, 2.0], [3.0, 4.0]])


def stepped(kind, **options):
    """An optimizer with gradients."""
    w = weight()
    optimizer = kind([w], **options)
    optimizer.grads[w].copy_(np.ones((2, 2)))
    return optimizer


# What is called, by name, and good arguments: those without a default.
CALLS = {
    **{
        kind.__name__: (kind, {"params": lambda: [weight()]})
        for kind in optim.optimizers().values()
    },
    "EMA": (optim.EMA, {"model": lambda: nn.Linear(2, 2)}),
    "GradNorm": (optim.GradNorm, {"tensors": lambda: [pg.ones((2,))]}),
    "ClipValue": (optim.ClipValue, {"tensors": lambda: [pg.ones((2,))], "value": lambda: 1.0}),
    "clip_factor": (optim.clip_factor, {"norm": lambda: 2.0, "clip": lambda: 1.0}),
    "ReduceOnPlateau": (optim.ReduceOnPlateau, {"schedule": lambda: 1.0}),
    "decay_groups": (optim.decay_groups, {"model": lambda: nn.Linear(2, 2)}),
    "param_groups": (optim.param_groups, {"model": lambda: nn.Linear(2, 2)}),
    "muon_groups": (optim.muon_groups, {"model": lambda: nn.Linear(2, 2)}),
    "layerwise_lr": (
        optim.layerwise_lr,
        {"model": lambda: nn.Linear(2, 2), "decay": lambda: 0.5},
    ),
    "constant": (schedules.constant, {"value": lambda: 0.1}),
    "linear": (
        schedules.linear,
        {"start": lambda: 1.0, "end": lambda: 0.0, "steps": lambda: 5},
    ),
    **{
        name: (getattr(schedules, name), {"start": lambda: 1.0, "steps": lambda: 5})
        for name in ("cosine", "cosine_restarts", "polynomial")
    },
    "inverse_sqrt": (schedules.inverse_sqrt, {"peak": lambda: 1.0, "warmup_steps": lambda: 3}),
    "one_cycle": (schedules.one_cycle, {"peak": lambda: 1.0, "total_steps": lambda: 9}),
    "warmup": (
        schedules.warmup,
        {"then": lambda: schedules.constant(1.0), "warmup_steps": lambda: 3},
    ),
    "warmup_cosine": (
        schedules.warmup_cosine,
        {"peak": lambda: 1.0, "warmup_steps": lambda: 3, "total_steps": lambda: 9},
    ),
    "warmup_stable_decay": (
        schedules.warmup_stable_decay,
        {
            "peak": lambda: 1.0,
            "warmup_steps": lambda: 3,
            "total_steps": lambda: 9,
            "decay_steps": lambda: 2,
        },
    ),
    "join": (
        schedules.join,
        {"schedules": lambda: [schedules.constant(1.0)] * 2, "boundaries": lambda: [3]},
    ),
    "SGD.step": (lambda **a: stepped(optim.SGD).step(**a), {"lr": lambda: 0.1}),
    "SGD.step ": (lambda **a: stepped(optim.SGD).step(**a), {"clip": lambda: 0.1}),
    "SGD.step  ": (lambda **a: stepped(optim.SGD).step(**a), {"grad_scale": lambda: 2.0}),
    "LBFGS.step": (lambda **a: optim.LBFGS([weight()]).step(**a), {"closure": lambda: lambda: 1.0}),
    "LBFGS.step ": (
        lambda loss: optim.LBFGS([weight()]).step(lambda: loss),
        {"loss": lambda: 1.0},
    ),
    "SGD.load_state_dict": (
        lambda state: optim.SGD([weight()]).load_state_dict(state),
        {"state": lambda: {"steps": 1, "lr": 0.1}},
    ),
    "SGD.load_state_dict ": (
        lambda **state: optim.SGD([weight()]).load_state_dict(state),
        {"steps": lambda: np.int64(1), "lr": lambda: np.asarray(0.1)},
    ),
    "EMA.load_state_dict": (
        lambda state: optim.EMA(nn.Linear(2, 2)).load_state_dict(state),
        {"state": lambda: optim.EMA(nn.Linear(2, 2)).state_dict()},
    ),
    "EMA.load_state_dict ": (
        lambda steps: optim.EMA(nn.Linear(2, 2)).load_state_dict(
            optim.EMA(nn.Linear(2, 2)).state_dict() | {"steps": steps}
        ),
        {"steps": lambda: 3},
    ),
    "ClipValue ": (
        optim.ClipValue([pg.ones((2,))], 1.0).__call__,
        {"factor": lambda: 0.5},
    ),
    "ReduceOnPlateau.update": (
        lambda measure: optim.ReduceOnPlateau(1.0).update(measure),
        {"measure": lambda: 2.0},
    ),
    "ReduceOnPlateau.load_state_dict": (
        lambda state: optim.ReduceOnPlateau(1.0).load_state_dict(state),
        {"state": lambda: optim.ReduceOnPlateau(1.0).state_dict()},
    ),
    "ReduceOnPlateau.load_state_dict ": (
        lambda **state: optim.ReduceOnPlateau(1.0).load_state_dict(state),
        {"scale": lambda: 1.0, "best": lambda: None, "bad": lambda: 1, "cooling": lambda: 0},
    ),
    "group of SGD": (
        lambda **group: optim.SGD([{"params": [weight()], **group}]),
        {"names": lambda: ["w"], "weight_decay": lambda: 0.1, "lr_scale": lambda: 1.0},
    ),
    "group of Muon": (
        lambda **group: optim.Muon([{"params": [weight()], **group}]),
        {"params": lambda: [weight()], "rule": lambda: "muon"},
    ),
}
# These take nothing, or are made by others.
OTHERS = {"Group", "ParamGroups", "Optimizer", "optimizers", "schedule_functions", "schedules"}

ODD = [
    None, "x", "0.1", b"x", "", True, -1, 0, 10**400, 2.5, -0.5, np.nan, np.inf, 1j,
    np.complex64(1), [], (), {}, (0.9,), ["a", "b"], [1, 2, 3], {"a": 1}, object, object(),
    lambda: 1, range(2),
    np.array(["a"]), np.array([1.0, 2.0]), np.array(0.5), nn.Linear(2, 2), pg.tensor([1, 2]),
    pg.tensor(0.5), [pg.tensor([1, 2])], [None], [{}], [nn.Linear(2, 2)], iter(()),
]  # fmt: skip


def arguments(name):
    """Every argument of a call: those of the table, and those with a default."""
    call, good = CALLS[name]
    own = [
        p.name
        for p in inspect.signature(call).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return list(dict.fromkeys([*good, *own]))


def test_everything_public_is_in_the_table():
    public = {*optim.__all__, *schedules.__all__} - OTHERS - {"Schedule"}
    assert public <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_are_taken_or_named(name):
    call, good = CALLS[name]
    who = name.strip().removeprefix("group of ")
    call(**{key: make() for key, make in good.items()})
    refused = {}
    for argument in arguments(name):
        for odd in ODD:
            if argument in ("closure", "then", "schedule") and callable(odd):
                continue  # what it does when called is its own
            given = {key: make() for key, make in good.items()} | {argument: odd}
            try:
                made = call(**given)
                if who in schedules.__all__:
                    assert isinstance(made(np.int64(4)), float)
            except (ValueError, TypeError, KeyError, FloatingPointError) as error:
                refused[f"{argument}={odd!r}"] = str(error).strip("\"'")
    unnamed = {k: text for k, text in refused.items() if not re.match(rf"{who}(\.\w+)?: ", text)}
    assert not unnamed
    assert len(refused) >= 5


@pytest.mark.parametrize("name", [n for n in schedules.__all__ if n != "Schedule"])
def test_odd_steps_of_a_schedule_are_named(name):
    call, good = CALLS[name]
    schedule = call(**{key: make() for key, make in good.items()})
    for odd in ODD:
        if isinstance(odd, (int, float)) and abs(odd) < 100 and not isinstance(odd, bool):
            assert isinstance(schedule(odd), float)
        else:
            with pytest.raises(ValueError, match=r"^\w+: step must be a number"):
                schedule(odd)
    for step in (0, 1, 3, 8, 100):
        for kind in (np.int32, np.int64, np.uint8, np.float32):
            assert schedule(kind(step)) == schedule(step)


def test_counts_may_be_numpys():
    n = np.int64
    assert schedules.linear(0.0, 1.0, n(4))(n(1)) == 0.25
    assert schedules.warmup_cosine(np.float32(1.0), n(2), n(6))(n(2)) == 1.0
    assert schedules.join([schedules.constant(1.0)] * 2, np.array([3]))(n(5)) == 1.0
    assert optim.LBFGS([weight()], max_iter=n(3), max_eval=n(5), history_size=n(2)).max_iter == 3
    assert optim.Muon([weight()], ns_steps=n(3)).ns_steps == 3
    assert optim.AdamW8bit([weight()], min_8bit_size=n(0)).min_8bit_size == 0
    assert optim.ReduceOnPlateau(1.0, patience=n(3), cooldown=n(1)).patience == 3
    assert optim.AdamW([weight()], lr=np.float32(0.5), betas=np.array([0.5, 0.75])).betas[1] == 0.75


def test_what_is_wrong_with_the_parameters_is_said():
    w, layer = weight(), nn.Linear(2, 2)
    for params, error, message in [
        (w, TypeError, "got Tensor; put the tensor into a list"),
        ({"params": [w]}, TypeError, "got dict; put the group into a list"),
        (dict(layer.named_parameters()), TypeError, r"give the values, list\(params.values\(\)\)"),
        (layer.named_parameters(), TypeError, "got tuple; for names give groups with names"),
        ([w, {"params": [w]}], TypeError, "got dict; give tensors or groups, not both"),
        ([{"params": layer}], TypeError, "got Linear; give its parameters"),
        ([{"params": w}], TypeError, "got Tensor; put the tensor into a list"),
        ([w * 2.0], ValueError, r"stored tensors, .* got a recorded op of shape \(2, 2\)"),
        ([], ValueError, "requires a gradient; got none"),
        ([pg.ones((2,))], ValueError, "got 1 that do not; unfreeze one"),
        ([w, w], ValueError, r"0 of shape \(2, 2\) is given twice, again as 1: leave one out"),
        (
            [{"params": [w], "names": ["a"]}, {"params": [w], "names": ["b"]}],
            ValueError,
            "a of shape .* is given twice, again as b",
        ),
        ([{"params": [w], "names": "w"}], ValueError, "names must be a list of texts; got str"),
        (
            [{"params": [w], "names": ["a"]}, {"params": [weight()], "names": ["a"]}],
            ValueError,
            "names must differ; got a twice",
        ),
    ]:
        with pytest.raises(error, match=message):
            optim.AdamW(params)
        assert w.grad is None


def test_a_copy_of_a_parameter_is_the_parameter():
    from copy import copy

    w = weight()
    with pytest.raises(ValueError, match="given twice"):
        optim.SGD([w, copy(w)])
