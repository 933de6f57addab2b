# SPDX-License-Identifier: MIT
"""Quantisation-aware training: what is rounded, the straight-through step, checkpoints, files."""

from itertools import pairwise

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import TokenDataset
from pyggml.errors import ConfigError, DTypeError, FormatError, ShapeError
from pyggml.models import build, load
from pyggml.optim import SGD, AdamW
from pyggml.train import Trainer, TrainStep, evaluate, quantization_aware

SIZES = {"vocab_size": 32, "context": 16, "n_embd": 256, "n_layer": 1, "n_head": 2, "n_ffn": 256}
IDS = np.random.default_rng(0).integers(0, 32, 400).astype(np.int32)


def rows(seed=0, count=2):
    at = np.random.default_rng(seed).integers(0, 380, count)
    found = np.stack([IDS[a : a + 17] for a in at])
    return found[:, :-1].copy(), found[:, 1:].copy()


def make(mix="q4_0", optimizer=AdamW, **options):
    pg.seed(1)
    model = build("llama", SIZES)
    made = optimizer(model, lr=1e-2)
    return model, made, quantization_aware(model, made, mix, **options)


def rounded(array, dtype):
    return pg.tensor(array, dtype).numpy()


@pytest.mark.parametrize("dtype", ["q4_0", "q4_K", "q8_0", "tq1_0", "tq2_0", "iq4_nl", "bf16"])
def test_a_step_is_straight_through(dtype):
    """The gradient is that of the rounded weight, and the master gets the update."""
    pg.seed(2)
    model = nn.Sequential(nn.Linear(256, 8))
    first, bias = model[0].weight.numpy(), model[0].bias.numpy()
    optimizer = SGD(model, lr=0.5)
    kinds = {"0.weight": dtype}
    aware = quantization_aware(model, optimizer, "q8_0", types=kinds)
    assert aware.types == kinds
    own = rounded(first, dtype).astype(np.float32)
    np.testing.assert_array_equal(model[0].weight.numpy(), own)
    x = np.random.default_rng(1).standard_normal((5, 256)).astype(np.float32)
    y = model(pg.tensor(x))
    ((y * y).sum() * 0.5).backward()
    grad = (x @ own.T + bias).T @ x
    np.testing.assert_allclose(model[0].weight.grad.numpy(), grad, rtol=1e-4, atol=1e-3)
    # as SGD's update of the master, which has its own rounding
    grad = model[0].weight.grad.numpy()
    optimizer.step()
    master = optimizer.rounded.masters["0.weight"].numpy()
    np.testing.assert_allclose(master, first - 0.5 * grad, rtol=1e-6, atol=1e-6)
    now = rounded(master, dtype).astype(np.float32)
    np.testing.assert_array_equal(model[0].weight.numpy(), now)
    with aware.quantized():
        assert model[0].weight.dtype.name == dtype
        np.testing.assert_array_equal(model[0].weight.numpy().astype(np.float32), now)
    assert model[0].weight.requires_grad
    aware.remove()
    np.testing.assert_array_equal(model[0].weight.numpy(), master)


def test_every_nth_step_rounds():
    model, optimizer, _ = make(every=3)
    step, seen = TrainStep(model, optimizer), []
    name = "model.layers.0.mlp.up_proj.weight"
    for i in range(6):
        step([rows(i)])
        seen.append(dict(model.named_parameters())[name].numpy())
    same = [np.array_equal(a, b) for a, b in pairwise(seen)]
    assert same == [True, False, True, True, False]
    norm = model.model.norm.weight.numpy()
    assert not np.array_equal(norm, np.ones_like(norm))  # what is not rounded moves each step


def test_updates_since_the_last_rounding_reach_the_file(tmp_path):
    model, optimizer, aware = make(every=5)
    step = TrainStep(model, optimizer)
    for i in range(3):
        step([rows(i)])
    masters = {n: v.numpy() for n, v in optimizer.rounded.masters.items()}
    held = {n: p.numpy() for n, p in model.named_parameters()}
    with aware.quantized():
        model.save(tmp_path / "within.gguf")
    assert all(np.array_equal(p.numpy(), held[n]) for n, p in model.named_parameters())
    aware.finish()
    model.save(tmp_path / "after.gguf")
    assert (tmp_path / "within.gguf").read_bytes() == (tmp_path / "after.gguf").read_bytes()
    again, _ = load(tmp_path / "after.gguf", keep_types=True)
    written = {n: p.numpy() for n, p in again.named_parameters() if n in aware.types}
    for name, values in written.items():
        np.testing.assert_array_equal(values, rounded(masters[name], aware.types[name]))
    assert any(not np.array_equal(values, held[name]) for name, values in written.items())


@pytest.mark.parametrize(
    ("mix", "options", "table", "up"),
    [
        ("q4_0", {}, "q6_K", "q4_0"),
        ("Q4_K_M", {}, "q6_K", "q4_K"),
        ("q8_0", {}, "q8_0", "q8_0"),
        ("tq2_0", {"types": {"embed_tokens.weight": "q4_0"}}, "q4_0", "tq2_0"),
        ("q4_0", {"pure": True}, "q4_0", "q4_0"),
        ("q4_0", {"types": {"model.embed_tokens.*": "f32"}}, None, "q4_0"),
    ],
)
def test_types_are_those_of_llama_cpps_mix(mix, options, table, up):
    _, _, aware = make(mix, **options)
    assert aware.types.get("model.embed_tokens.weight") == table
    assert aware.types["model.layers.0.mlp.up_proj.weight"] == up
    assert "model.norm.weight" not in aware.types


@pytest.mark.parametrize("mix", ["q4_K", "tq2_0"])
def test_the_file_has_the_bytes_that_were_trained_with(mix, tmp_path):
    model, optimizer, aware = make(mix)
    step = TrainStep(model, optimizer)
    for i in range(3):
        step([rows(i)])
    held = {name: p.numpy() for name, p in model.named_parameters()}
    with aware.quantized():
        model.save(tmp_path / "within.gguf")
    x = pg.tensor(rows()[0])
    said = model.eval()(x).numpy()
    aware.finish()
    model.save(tmp_path / "after.gguf")
    assert (tmp_path / "within.gguf").read_bytes() == (tmp_path / "after.gguf").read_bytes()
    again, _ = load(tmp_path / "after.gguf", keep_types=True)
    for name, p in again.named_parameters():
        np.testing.assert_array_equal(p.numpy(), held[name])
    assert {p.dtype.name for p in again.parameters()} == {"f32", *set(aware.types.values())}
    # products of quantised weights round the activations to eight bits
    np.testing.assert_allclose(again.eval()(x).numpy(), said, atol=0.05 * np.abs(said).max())
    whole, _ = load(tmp_path / "after.gguf")
    np.testing.assert_array_equal(whole.eval()(x).numpy(), said)


@pytest.mark.parametrize("every", [1, 3])
def test_a_resumed_run_has_the_same_bits(every, tmp_path):
    def trainer(folder):
        model, optimizer, aware = make(every=every)
        made = Trainer(
            model, TokenDataset(IDS, seq_len=16), optimizer=optimizer, batch_size=2, steps=8,
            save_every=4, accumulate=2, checkpoint_dir=folder, seed=3, keep=5,
        )  # fmt: skip
        return made, aware

    whole, _ = trainer(tmp_path / "whole")
    whole.fit()
    again, aware = trainer(tmp_path / "other")
    again.resume(tmp_path / "whole" / "step-000004")
    assert again.step == 4
    again.fit()
    for (name, a), (_, b) in zip(
        whole.model.named_parameters(), again.model.named_parameters(), strict=True
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)
    with aware.quantized():
        again.model.save(tmp_path / "a.gguf")
    plain = Trainer(
        build("llama", SIZES), TokenDataset(IDS, seq_len=16), batch_size=2, steps=8, seed=3,
        accumulate=2, checkpoint_dir=tmp_path / "plain",
    )  # fmt: skip
    with pytest.raises(FormatError, match="rounded"):
        plain.resume(tmp_path / "whole" / "step-000004")


def test_evaluations_are_of_the_rounded_weights():
    model, optimizer, aware = make("tq2_0")
    TrainStep(model, optimizer)([rows()])
    before = evaluate(model, [rows(1)]).loss
    aware.remove()
    assert evaluate(model, [rows(1)]).loss != before


def test_importance_weighs_the_columns():
    weight = np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32)
    off = []
    for importance in (None, {"0": np.where(np.arange(256) < 128, 100.0, 0.01)}):
        model = nn.Sequential(nn.Linear(256, 16))
        model[0].weight.copy_(weight)
        quantization_aware(model, SGD(model, lr=0.1), "q4_K", importance=importance)
        off.append(np.linalg.norm((model[0].weight.numpy() - weight)[:, :128]))
    assert off[1] < off[0]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"mix": "q9_0"}, ValueError, "mix"),
        ({"mix": 4}, TypeError, "mix"),
        ({"every": 0}, ValueError, "every"),
        ({"types": {"nothing": "q4_0"}}, ValueError, "types"),
        ({"types": {"up_proj.weight": "i32"}}, DTypeError, "types"),
        ({"types": {"up_proj.weight": "q8_K"}}, DTypeError, "q8_K"),
        ({"types": {"up_proj.weight": "iq2_xxs"}}, DTypeError, "importance"),
        ({"types": {"norm.weight": "q4_0"}}, ShapeError, "q4_0"),
        ({"mix": "F32"}, ValueError, "mix"),
        ({"pure": 1}, TypeError, "pure"),
    ],
)
def test_mistakes_change_nothing(options, error, said):
    pg.seed(1)
    model = build("llama", SIZES)
    optimizer = AdamW(model, lr=1e-3)
    before = model.state_dict()
    with pytest.raises(error, match=said):
        quantization_aware(model, optimizer, **options)
    assert optimizer.rounded is None
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_what_does_not_go_together():
    model, optimizer, _ = make()
    with pytest.raises(ValueError, match="already"):
        quantization_aware(model, optimizer, "q4_0")
    with pytest.raises(ConfigError, match="ema"):
        Trainer(model, TokenDataset(IDS, seq_len=16), optimizer=optimizer, ema=0.9, steps=2)
    other = build("llama", SIZES)
    with pytest.raises(ValueError, match="fused_update"):
        quantization_aware(other, AdamW(other, lr=1e-3, fused_update=True), "q4_0")
    with pytest.raises(ValueError, match="optimizer"):
        quantization_aware(other, optimizer, "q4_0")
    nn.apply_lora(other, 2)
    with pytest.raises(ValueError, match="adapters"):
        quantization_aware(other, AdamW(other, lr=1e-3), "q4_0")
