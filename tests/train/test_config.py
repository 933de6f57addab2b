# SPDX-License-Identifier: MIT
from __future__ import annotations

import json

import pytest

from pyggml.recipes.sizes import estimate_parameters, model_config
from pyggml.train import ConfigError, TrainConfig

# What is wrong, and what the message must say: the option, the value, the cure.
BAD = [
    ({"layers": 0}, ["--layers", "at least 1", "got 0"]),
    ({"heads": -2}, ["--heads", "got -2"]),
    ({"embd": 0}, ["--embd", "got 0"]),
    ({"kv_heads": 0}, ["--kv-heads", "got 0"]),
    ({"ffn": -1}, ["--ffn", "got -1"]),
    ({"context": 0}, ["--context"]),
    ({"seq_len": 0}, ["--seq-len", "got 0"]),
    ({"stride": 0}, ["--stride", "got 0"]),
    ({"batch_size": 0}, ["--batch-size", "got 0"]),
    ({"accumulate": 0}, ["--accumulate"]),
    ({"epochs": 0}, ["--epochs"]),
    ({"steps": -5}, ["--steps", "got -5"]),
    ({"steps": 2.5}, ["--steps", "whole number", "2.5"]),
    ({"steps": True}, ["--steps", "whole number"]),
    ({"threads": 0}, ["--threads"]),
    ({"warmup": -1}, ["--warmup"]),
    ({"eval_every": -1}, ["--eval-every"]),
    ({"save_every": -1}, ["--save-every"]),
    ({"keep": 0}, ["--keep", "at least 1"]),
    ({"seed": -1}, ["--seed"]),
    ({"seed": 2**63}, ["--seed"]),
    ({"context": 10**400}, ["--context", "at most"]),
    ({"steps": 10**400}, ["--steps", "at most"]),
    ({"accumulate": 10**9}, ["--accumulate", "65536", "1000000000", "--batch-size"]),
    ({"lr": 1e300}, ["--lr", "finite", "1e+300"]),
    ({"lr": 10**400}, ["--lr", "finite"]),
    ({"lr": float("inf")}, ["--lr", "finite"]),
    ({"weight_decay": 1e300}, ["--weight-decay", "finite", "1e+300"]),
    ({"clip": 1e39}, ["--clip", "finite"]),
    ({"lr": 0.0}, ["--lr", "above 0"]),
    ({"lr": float("nan")}, ["--lr", "finite"]),
    ({"lr": "fast"}, ["--lr", "number", "fast"]),
    ({"lr": 1e-3, "min_lr": 1e-2}, ["--min-lr", "0.01", "--lr"]),
    ({"weight_decay": -0.1}, ["--weight-decay", "-0.1"]),
    ({"beta2": 1.0}, ["--beta2", "1.0"]),
    ({"clip": -1.0}, ["--clip", "-1.0", "0"]),
    ({"val_fraction": 1.0}, ["--val-fraction", "below 1"]),
    ({"val_fraction": -0.1}, ["--val-fraction"]),
    ({"tokenizer": ""}, ["--tokenizer"]),
    ({"tokenizer": "bpe:many"}, ["--tokenizer", "bpe:many", "bpe:2048"]),
    ({"tokenizer": "bpe:100"}, ["257", "bpe:100"]),
    ({"tokenizer": "bpe:" + "9" * 30}, ["--tokenizer", "1000000"]),
    ({"device": 5}, ["--device", "text", "5"]),
    ({"prompt": None}, ["--prompt", "text"]),
    ({"arch": 1}, ["--arch", "text"]),
    ({"text": ""}, ["--text", "empty"]),
    ({"artifact_dir": ""}, ["--artifact-dir", "empty"]),
    ({"epochs": 1, "steps": 1}, ["--epochs", "--steps", "one of them"]),
    ({"heads": 3, "embd": 256}, ["--heads must divide --embd", "3", "256", "--embd 258"]),
    ({"heads": 4, "kv_heads": 3}, ["--kv-heads must divide --heads", "3", "4"]),
    ({"seq_len": 65, "context": 64}, ["--seq-len", "--context", "65", "64"]),
    ({"steps": 5, "warmup": 6}, ["--warmup", "--steps"]),
    ({"ema": 1.0}, ["--ema", "below 1", "1.0", "--ema 0.999"]),
    ({"clip_value": -1.0}, ["--clip-value", "-1.0", "0"]),
    ({"checkpointing": "some"}, ["--checkpointing", "'some'", "--checkpointing all"]),
    ({"checkpointing": -1}, ["--checkpointing", "-1"]),
    ({"checkpointing": 1.5}, ["--checkpointing", "1.5"]),
    ({"memory_limit": "much"}, ["--memory-limit", "'much'", "2GiB"]),
    ({"memory_limit": 0}, ["--memory-limit", "above 0"]),
    ({"precision": "f64"}, ["--precision", "f16", "f64"]),
    (
        {"fused_update": True, "clip": 0.0, "clip_value": 1.0},
        ["--fused-update excludes --clip-value", "--clip-value 1"],
    ),
    (
        {"fused_update": True, "clip": 0.0, "precision": "f16"},
        ["--fused-update excludes --precision f16", "bf16"],
    ),
    ({"fused_update": 1}, ["--fused-update", "on or off", "got 1"]),
    ({"fused_update": True}, ["--fused-update excludes --clip", "--clip 1", "--clip 0"]),
    (
        {"fused_update": True, "clip": 0.0, "accumulate": 2},
        ["--fused-update excludes --accumulate", "--accumulate 2"],
    ),
]


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[str(fields) for fields, _ in BAD])
def test_bad_options_are_named(fields, words):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**fields)
    for word in words:
        assert word in str(caught.value)


def test_round_trip_through_json():
    config = TrainConfig(text=("a.txt", "b"), layers=2, lr=3e-4, epochs=3, val_fraction=0.2)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_from_dict_refuses_what_it_does_not_know():
    with pytest.raises(ConfigError, match="colour"):
        TrainConfig.from_dict({"colour": 1})
    with pytest.raises(ConfigError, match="--text"):
        TrainConfig.from_dict({"text": 7})


def test_one_path_is_a_list_of_one():
    assert TrainConfig(text="a.txt").text == ("a.txt",)


def test_total_steps():
    assert TrainConfig(steps=7).total_steps(100, 400) == 7
    assert TrainConfig(epochs=3, accumulate=2).total_steps(10, 400) == 15
    assert TrainConfig(epochs=1, accumulate=64).total_steps(10, 400) == 1
    assert TrainConfig().total_steps(10, 400) == 400


def test_sizes_come_from_options_then_preset_then_default():
    arch, sizes = model_config(TrainConfig(), 300)
    assert (arch, sizes.vocab_size) == ("llama", 300)
    arch, sizes = model_config(TrainConfig(preset="gpt2-124m", layers=2), 300)
    assert (arch, sizes.n_layer, sizes.n_embd, sizes.context) == ("gpt2", 2, 768, 1024)
    arch, sizes = model_config(TrainConfig(arch="gpt2", preset="tiny"), 300)
    assert (arch, sizes.n_embd) == ("gpt2", 128)
    _, sizes = model_config(TrainConfig(preset="tiny", heads=8), 300)
    assert sizes.n_kv_head == 8
    _, sizes = model_config(TrainConfig(seq_len=48), 300)
    assert sizes.context == 48


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arch": "gpt9"}, ["--arch", "gpt9", "llama"]),
        ({"preset": "huge"}, ["--preset", "huge", "tiny", "gpt2-124m"]),
        ({"arch": "llama", "preset": "gpt2-124m"}, ["--preset", "--arch llama"]),
        ({"arch": "gpt2", "kv_heads": 2}, ["--kv-heads", "gpt2"]),
        ({"heads": 3}, ["--heads must divide --embd", "got --heads 3"]),
        ({"preset": "tiny", "embd": 130}, ["--heads must divide --embd"]),
        ({"kv_heads": 3}, ["--kv-heads must divide --heads"]),
        ({"preset": "tiny", "seq_len": 4096}, ["--seq-len", "4096", "--context 4096"]),
        ({"embd": 12, "heads": 4}, ["--embd"]),  # an odd head size has no rotary pairs
    ],
)
def test_sizes_that_do_not_go_together(fields, words):
    with pytest.raises(ConfigError) as caught:
        model_config(TrainConfig(**fields), 300)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_parameter_estimate_is_close(arch):
    from pyggml.models import build

    _, sizes = model_config(TrainConfig(arch=arch, preset="tiny"), 300)
    exact = build(arch, sizes).num_parameters()
    assert abs(estimate_parameters(sizes) - exact) < 0.01 * exact
