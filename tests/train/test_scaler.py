# SPDX-License-Identifier: MIT
"""Loss scaling: what it changes, what it skips, and what comes back from a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml.errors import FormatError
from pyggml.optim import SGD, AdamW
from pyggml.train import GradScaler, MetricsWriter, NonFiniteError, TrainStep, read_metrics

from .test_step import batch, gradients
from .tiny import edit_state, make_model, make_trainer, same


def test_the_scale_halves_on_overflow_and_grows_after_good_steps():
    scaler = GradScaler(growth_interval=3)
    scales = []
    for overflow in (False, False, True, False, False, False, True, True):
        assert scaler.update(overflow)
        scales.append(scaler.scale / 2**16)
    assert scales == [1, 1, 0.5, 0.5, 0.5, 1, 0.5, 0.25]
    assert scaler.skipped == 3


def test_the_scale_has_an_end():
    scaler = GradScaler(init_scale=4.0, backoff_factor=0.25)
    assert [scaler.update(True) for _ in range(3)] == [True, False, False]
    assert scaler.scale == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"init_scale": 0.0}, "init_scale must be finite in f32 and > 0; got 0.0"),
        ({"init_scale": float("inf")}, "init_scale"),
        ({"init_scale": 1e39}, "init_scale"),
        ({"growth_factor": 1.0}, "growth_factor must be finite and > 1"),
        ({"backoff_factor": 1.0}, "backoff_factor must be between 0 and 1"),
        ({"growth_interval": 0}, "growth_interval must be an integer >= 1"),
        ({"growth_interval": 2.5}, "growth_interval"),
        ({"min_scale": 2.0**17}, "min_scale must be > 0, at most init_scale"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        GradScaler(**options)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"scale": "x", "good_steps": 0, "skipped": 0},
        {"scale": 0.0, "good_steps": 0, "skipped": 0},
        {"scale": float("nan"), "good_steps": 0, "skipped": 0},
        {"scale": 10**400, "good_steps": 0, "skipped": 0},
        {"scale": 2.0, "good_steps": -1, "skipped": 0},
        {"scale": 2.0, "good_steps": 0, "skipped": True},
    ],
)
def test_a_damaged_state_changes_nothing(state):
    scaler = GradScaler()
    before = scaler.state_dict()
    with pytest.raises(ValueError, match="load_state_dict"):
        scaler.load_state_dict(state)
    assert scaler.state_dict() == before


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("make", [SGD, AdamW])
def test_a_power_of_two_changes_no_bit(make, clip):
    """Scaled and divided again: the same losses, norms and weights."""
    runs = []
    for scaler in (None, GradScaler(2.0**10)):
        model = make_model()
        step = TrainStep(model, make(model.parameters(), lr=1e-2), clip=clip, scaler=scaler)
        results = [step([batch(4, seed=i)]) for i in range(4)]
        runs.append((results, model.state_dict()))
    assert [r.loss for r in runs[0][0]] == [r.loss for r in runs[1][0]]
    assert [r.grad_norm for r in runs[0][0]] == [r.grad_norm for r in runs[1][0]]
    if clip is None:
        assert same(runs[0][1], runs[1][1])
    for name, value in runs[0][1].items():
        np.testing.assert_allclose(value, runs[1][1][name], rtol=1e-6, atol=1e-8)


def test_overflow_skips_the_step():
    model = make_model()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    # The gradients times this are finite; the sum of their squares is not.
    step = TrainStep(model, optimizer, precision="f16", scaler=GradScaler(2.0**66))
    before, state = model.state_dict(), optimizer.state_dict()
    results = []
    while not results or results[-1].skipped:
        results.append(step([batch(4)]))
        if results[-1].skipped:
            assert same(model.state_dict(), before)
            assert same(optimizer.state_dict(), state)
            assert results[-1].grad_norm == np.inf
    skipped = len(results) - 1
    assert skipped == step.scaler.skipped > 0
    assert step.scaler.scale == 2.0 ** (66 - skipped)
    assert optimizer.steps == 1
    assert np.isfinite(results[-1].grad_norm)
    assert not same(model.state_dict(), before)


@pytest.mark.parametrize("where", ["loss", "gradients"])
def test_what_no_scale_mends_is_an_error(where):
    model = make_model()
    step = TrainStep(model, AdamW(model.parameters(), lr=1e-2), precision="f16")
    last = model.parameters()[-1]
    if where == "loss":
        last.copy_(np.full(last.shape, np.nan, np.float32))
        with pytest.raises(NonFiniteError, match="the loss must be finite"):
            step([batch(4)])
        assert step.scaler.skipped == 0
        return
    step.scaler.scale = 1.0
    first = model.parameters()[0]
    first.copy_(np.full(first.shape, 1e-38, np.float32))  # its norm's gradient is infinite
    real = step.optimizer.step

    def overflowing(**options):
        for grad in step.optimizer.grads.values():
            grad.copy_(np.full(grad.shape, np.inf, np.float32))
        return real(**options)

    step.optimizer.step = overflowing
    with pytest.raises(NonFiniteError, match="at the smallest loss scale 1, too"):
        step([batch(4)])


def test_accumulated_gradients_are_scaled_alike():
    x, y = batch(4)
    seen = []
    for parts in (1, 2):
        model = make_model()
        step = TrainStep(model, SGD(model.parameters(), lr=0.1), scaler=GradScaler())
        pieces = list(zip(np.split(x, parts), np.split(y, parts), strict=True))
        seen.append((step(pieces).grad_norm, gradients(step)))
    assert seen[0][0] == pytest.approx(seen[1][0], rel=1e-6)
    for name, grad in seen[0][1].items():
        scale = np.abs(grad).max()
        np.testing.assert_allclose(grad, seen[1][1][name], atol=1e-6 * scale, err_msg=name)


def test_the_trainer_reports_and_keeps_the_scale(tmp_path):
    trainer = make_trainer(
        tmp_path, [MetricsWriter(tmp_path / "m.jsonl")], steps=4, precision="f16"
    )
    trainer.scaler.scale = 2.0**66
    trainer.fit()
    lines = [line for line in read_metrics(tmp_path / "m.jsonl") if line["kind"] == "train"]
    assert lines[0]["loss_scale"] == 2.0**66
    assert lines[0]["grad_norm"] is None  # JSON has no infinity
    assert lines[0]["skipped"] == 1
    assert lines[-1]["skipped"] == trainer.scaler.skipped
    again = make_trainer(tmp_path, steps=4, precision="f16")
    assert again.resume() == 4
    assert again.scaler.state_dict() == trainer.scaler.state_dict()
    edit_state(trainer.last_checkpoint, scaler={"scale": -1})
    with pytest.raises(FormatError, match=r"state\.json: scaler: .*scale"):
        make_trainer(tmp_path, steps=4, precision="f16").resume()


def test_f32_has_no_scale(tmp_path):
    trainer = make_trainer(tmp_path, [MetricsWriter(tmp_path / "m.jsonl")], steps=1)
    trainer.fit()
    assert trainer.scaler is None
    assert "loss_scale" not in read_metrics(tmp_path / "m.jsonl")[0]


@pytest.mark.parametrize(
    "options", [{"precision": "f16"}, {"scaler": GradScaler()}, {"clip_value": 1.0}, {"clip": 1.0}]
)
def test_updates_in_the_backward_exclude_it(options):
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.1, fused_update=True)
    with pytest.raises(ValueError, match="gradients"):
        TrainStep(model, optimizer, **options)


@pytest.mark.parametrize("scaler", [None, GradScaler(2.0**10)])
def test_clipping_by_value(scaler):
    """As torch.nn.utils.clip_grad_value_, then clip_grad_norm_."""
    value, x = 0.02, batch(4)
    plain = make_model()
    free = TrainStep(plain, SGD(plain.parameters(), lr=1.0))
    norm = free([x]).grad_norm
    grads = {name: np.clip(g, -value, value) for name, g in gradients(free).items()}
    assert any(np.abs(g).max() == np.float32(value) for g in grads.values())
    length = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads.values()))
    for clip in (None, float(length) / 3):
        model = make_model()
        before = model.state_dict()
        step = TrainStep(
            model, SGD(model.parameters(), lr=1.0), clip=clip, clip_value=value, scaler=scaler
        )
        assert step([x]).grad_norm == pytest.approx(norm, rel=1e-6)
        factor = 1.0 if clip is None else clip / (length + 1e-6)
        for name, now in model.state_dict().items():
            want = before[name] - factor * grads[name]
            np.testing.assert_allclose(now, want, rtol=1e-5, atol=1e-7, err_msg=name)


def test_clipping_by_value_is_an_option_of_the_trainer():
    trainer = make_trainer(steps=1, clip_value=1e-9, clip=0.0)
    before = trainer.model.state_dict()
    trainer.fit()
    assert not same(trainer.model.state_dict(), before)
    assert max(np.abs(p.grad.numpy()).max() for p in trainer.model.parameters()) <= 1e-9
