# SPDX-License-Identifier: MIT
import json
import math

import numpy as np
import pytest

from pyggml.optim import ReduceOnPlateau, schedule_functions, schedules


def nano_gpt(step, peak, warmup, total, end):
    """get_lr of nanoGPT's train.py, written out."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step > total:
        return end
    ratio = (step - warmup) / (total - warmup)
    return end + 0.5 * (1 + math.cos(math.pi * ratio)) * (peak - end)


@pytest.mark.parametrize(
    ("peak", "warmup", "total", "end"),
    [(1e-3, 100, 2000, 1e-4), (1.0, 0, 10, 0.0), (1.0, 1, 3, 0.5), (0.5, 7, 8, 0.1)],
)
def test_warmup_cosine_is_nano_gpts(peak, warmup, total, end):
    schedule = schedules.warmup_cosine(peak, warmup, total, end)
    for step in range(total + 5):
        assert schedule(step) == pytest.approx(nano_gpt(step, peak, warmup, total, end))


def test_a_warmup_as_long_as_the_run_only_rises():
    schedule = schedules.warmup_cosine(1.0, 4, 4)
    assert [schedule(step) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


def test_values():
    assert schedules.constant(0.5)(10**9) == 0.5
    assert [schedules.linear(1.0, 0.0, 2)(s) for s in (-1, 0, 1, 2, 3)] == [1, 1, 0.5, 0, 0]
    cosine = schedules.cosine(2.0, 4, 1.0)
    assert [cosine(s) for s in (0, 2, 4, 99)] == pytest.approx([2.0, 1.5, 1.0, 1.0])
    joined = schedules.join(
        [schedules.constant(3.0), schedules.linear(0.0, 1.0, 2), schedules.constant(7.0)], [2, 5]
    )
    assert [joined(s) for s in range(7)] == [3.0, 3.0, 0.0, 0.5, 1.0, 7.0, 7.0]


def rising(step, peak, steps):
    return peak * (step + 1) / (steps + 1)


# name, arguments, closed formula
FORMULAS = [
    ("constant", (0.3,), lambda t: 0.3),
    ("linear", (1.0, 0.2, 8), lambda t: 1.0 - 0.8 * min(t, 8) / 8),
    ("cosine", (2.0, 9, 0.5), lambda t: 0.5 + 0.75 * (1 + math.cos(math.pi * min(t, 9) / 9))),
    (
        "cosine_restarts",
        (1.0, 5, 0.1, 1, 0.5),
        lambda t: 0.1 + 0.45 * 0.5 ** (t // 5) * (1 + math.cos(math.pi * (t % 5) / 5)),
    ),
    ("polynomial", (1.0, 8, 0.1, 3.0), lambda t: 0.1 + 0.9 * (1 - min(t, 8) / 8) ** 3),
    (
        "inverse_sqrt",
        (1.0, 6),
        lambda t: rising(t, 1.0, 6) if t < 6 else math.sqrt(6 / t),
    ),
    (
        "inverse_sqrt",
        (1.0, 6, 3),
        lambda t: rising(t, 1.0, 6) if t < 6 else 1 / math.sqrt(1 + (t - 6) / 3),
    ),
    ("inverse_sqrt", (1.0, 0), lambda t: 1 / math.sqrt(1 + t / 10_000)),
    (
        "one_cycle",
        (1.0, 21, 0.5, 10.0, 10.0),
        lambda t: (
            0.1 + 0.9 * 0.5 * (1 - math.cos(math.pi * t / 9.5))
            if t <= 9.5
            else 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (min(t, 20) - 9.5) / 10.5))
        ),
    ),
    ("warmup_cosine", (1.0, 7, 21, 0.1), lambda t: nano_gpt(t, 1.0, 7, 21, 0.1)),
    (
        "warmup_stable_decay",
        (1.0, 4, 20, 6, 0.2),
        lambda t: rising(t, 1.0, 4) if t < 4 else 1.0 if t < 14 else 1 - 0.8 * min(t - 14, 6) / 6,
    ),
    (
        "warmup_stable_decay",
        (1.0, 0, 10, 10, 0.0, "sqrt"),
        lambda t: 1 - math.sqrt(min(t, 10) / 10),
    ),
    (
        "warmup_stable_decay",
        (1.0, 0, 10, 5, 0.0, "cosine"),
        lambda t: 0.5 * (1 + math.cos(math.pi * min(max(t - 5, 0), 5) / 5)),
    ),
]


def test_every_schedule_has_a_formula():
    assert {name for name, _, _ in FORMULAS} == set(schedule_functions())
    others = {"Joined", "ReduceOnPlateau", "Schedule", "is_adaptive", "update_schedule"}
    assert set(schedules.__all__) - set(schedule_functions()) == {"join", "warmup", *others}


@pytest.mark.parametrize(("name", "arguments", "formula"), FORMULAS)
def test_schedules_are_their_formulas(name, arguments, formula):
    schedule = schedule_functions()[name](*arguments)
    for step in range(30):
        assert schedule(step) == pytest.approx(formula(step), rel=1e-12, abs=1e-15), step


# torch's class and options, and ours
TORCH = [
    ("CosineAnnealingLR", {"T_max": 20, "eta_min": 0.01}, schedules.cosine(0.1, 20, 0.01), 20),
    (
        "CosineAnnealingWarmRestarts",
        {"T_0": 4, "T_mult": 2, "eta_min": 0.01},
        schedules.cosine_restarts(0.1, 4, 0.01, 2),
        40,
    ),
    (
        "CosineAnnealingWarmRestarts",
        {"T_0": 7},
        schedules.cosine_restarts(0.1, 7),
        40,
    ),
    ("PolynomialLR", {"total_iters": 12, "power": 2.0}, schedules.polynomial(0.1, 12, 0.0, 2), 20),
    (
        "LinearLR",
        {"start_factor": 0.5, "end_factor": 0.1, "total_iters": 9},
        schedules.linear(0.05, 0.01, 9),
        20,
    ),
    (
        "OneCycleLR",
        {"max_lr": 0.1, "total_steps": 30, "pct_start": 0.3},
        schedules.one_cycle(0.1, 30),
        30,
    ),
    (
        "OneCycleLR",
        {"max_lr": 0.1, "total_steps": 25, "pct_start": 0.47, "div_factor": 3.0},
        schedules.one_cycle(0.1, 25, 0.47, 3.0),
        25,
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "options", "schedule", "steps"), TORCH)
def test_schedules_are_pytorchs(kind, options, schedule, steps):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    other = getattr(torch.optim.lr_scheduler, kind)(optimizer, **options)
    for step in range(steps):
        assert schedule(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6), step
        if step + 1 < steps:
            optimizer.step()
            other.step()


PLATEAUS = [
    {},
    {"patience": 0, "factor": 0.5},
    {"patience": 2, "factor": 0.5, "cooldown": 3},
    {"patience": 1, "mode": "max", "threshold": 0.1, "threshold_mode": "abs"},
    {"patience": 1, "threshold": 0.05, "least": 0.02},
]


@pytest.mark.parametrize("options", PLATEAUS)
def test_plateaus_are_pytorchs(options):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = {"min_lr" if k == "least" else k: v for k, v in options.items()}
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, eps=0.0, **theirs)
    own = ReduceOnPlateau(0.1, **options)
    rng = np.random.default_rng(0)
    falling = options.get("mode") != "max"
    for step in range(60):
        measure = float(rng.uniform(0.8, 1.2) + (0.95**step if falling else -(0.95**step)))
        before = own(step)
        assert own.update(measure) == (own(step) < before) or own(step) == options.get("least")
        other.step(measure)
        assert own(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)


def test_a_plateau_goes_on_from_its_state():
    one = ReduceOnPlateau(schedules.linear(1.0, 0.0, 100), 0.5, patience=1)
    measures = [3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 1.0, float("nan"), 1.0, 1.0]
    for measure in measures[:4]:
        one.update(measure)
    two = ReduceOnPlateau(schedules.linear(1.0, 0.0, 100), 0.5, patience=1)
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for step, measure in enumerate(measures[4:]):
        assert one.update(measure) == two.update(measure)
        assert one(step) == two(step)
    assert one(50) == pytest.approx(0.5 * 0.5**3)
    new = ReduceOnPlateau(1.0)
    new.load_state_dict(json.loads(json.dumps(new.state_dict())))
    assert new.best == math.inf
    with pytest.raises(KeyError, match="needs"):
        two.load_state_dict({"scale": 1.0})
    with pytest.raises(ValueError, match="scale must be"):
        two.load_state_dict({**one.state_dict(), "scale": -1.0})
    assert two.state_dict() == one.state_dict()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.linear(0, 1, 0), "linear: steps must be"),
        (lambda: schedules.cosine(1, 0), "cosine: steps must be"),
        (lambda: schedules.warmup_cosine(1, -1, 5), "warmup_steps must be"),
        (lambda: schedules.warmup_cosine(1, 1, 0), "total_steps must be"),
        (lambda: schedules.cosine_restarts(1, 0), "cosine_restarts: steps must be"),
        (lambda: schedules.cosine_restarts(1, 2, growth=0), "growth must be"),
        (lambda: schedules.cosine_restarts(1, 2, shrink=2.0), "shrink must be"),
        (lambda: schedules.polynomial(1, 4, power=0.0), "power must be"),
        (lambda: schedules.inverse_sqrt(1, -1), "warmup_steps must be"),
        (lambda: schedules.inverse_sqrt(1, 1, 0), "timescale must be"),
        (lambda: schedules.one_cycle(1, 2), "total_steps must be"),
        (lambda: schedules.one_cycle(1, 9, rise=1.0), r"rise must be"),
        (lambda: schedules.one_cycle(1, 9, start_divisor=0.0), "start_divisor must be"),
        (lambda: schedules.warmup(schedules.constant(1), -1), "warmup_steps must be"),
        (lambda: schedules.warmup_stable_decay(1, 4, 9, 6), "total_steps must be"),
        (lambda: schedules.warmup_stable_decay(1, 1, 9, 6, shape="x"), "shape must be"),
        (lambda: ReduceOnPlateau(1.0, factor=1.0), "factor must be"),
        (lambda: ReduceOnPlateau(1.0, factor=0.0), "factor must be"),
        (lambda: ReduceOnPlateau(1.0, patience=-1), "patience must be"),
        (lambda: ReduceOnPlateau(1.0, cooldown=-1), "cooldown must be"),
        (lambda: ReduceOnPlateau(1.0, mode="less"), "mode must be"),
        (lambda: ReduceOnPlateau(1.0, threshold=-1.0), "threshold must be"),
        (lambda: ReduceOnPlateau(-1.0), "schedule must be"),
        (lambda: schedules.join([schedules.constant(1)], [3]), "boundaries must have"),
        (lambda: schedules.join([schedules.constant(1)] * 3, [5, 2]), "must rise"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "schedule",
    [
        schedules.linear(1.0, 0.0, 5),
        schedules.cosine(1.0, 5),
        schedules.cosine_restarts(1.0, 3),
        schedules.one_cycle(1.0, 10),
        schedules.inverse_sqrt(1.0, 3),
        schedules.warmup_cosine(1.0, 2, 10),
        schedules.join([schedules.constant(1.0), schedules.constant(2.0)], [3]),
    ],
)
@pytest.mark.parametrize("step", [(1, 2), "3", None])
def test_a_step_that_is_no_number_is_told(schedule, step):
    with pytest.raises(TypeError, match="step must be a number; got"):
        schedule(step)
