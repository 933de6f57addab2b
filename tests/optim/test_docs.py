# SPDX-License-Identifier: MIT
"""What docs/guide/loop.md shows works, and all losses, optimizers and schedules are named."""

import re
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.models import GPT2, GPT2Config, LlamaConfig
from pyggml.nn import losses

TEXT = (Path(__file__).parents[2] / "docs" / "guide" / "loop.md").read_text("utf-8")
SECTIONS = ("Losses", "Optimizers", "Schedules", "LoRA", "A gradient of one's own")


def section(title):
    return re.split(r"^## ", TEXT.split(f"\n## {title}\n")[1], maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("last", range(len(SECTIONS)))
def test_the_examples_run(last, tmp_path, monkeypatch):
    """Each section goes on from those before it."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for title in SECTIONS[: last + 1]:
        for block in re.findall(r"```python\n(.*?)```", section(title), re.DOTALL):
            exec(block, names)


def test_the_bytes_of_the_state_are_those_of_the_table():
    want = {"SGD": 0, "Adam": 8, "AdamW": 8, "AdamW8bit": 3 * 34 / 32, "RMSprop": 4, "Adagrad": 4}
    want |= {"Adafactor": 2 * 4 / 64, "Lion": 4, "Muon": 4, "LBFGS": 4 * (2 * 10 + 8)}
    for kind in optim.optimizers().values():
        w = nn.Parameter(np.zeros((64, 64), np.float32))
        assert kind([w]).nbytes / w.size == want[kind.__name__], kind.__name__
    momentum = optim.SGD([nn.Parameter(np.zeros((8, 8)))], momentum=0.5)
    both = optim.RMSprop([nn.Parameter(np.zeros((8, 8)))], momentum=0.5, centered=True)
    assert (momentum.nbytes, both.nbytes) == (4 * 64, 12 * 64)


def test_the_bytes_measured_on_a_model_are_those_of_the_table():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| ([\d.]+) \|$", section("Optimizers"), re.M)
    told = {name: value for names, value in rows for name in re.findall(r"\w+", names)}
    for kind in optim.optimizers().values():
        pg.seed(0)
        model = GPT2(GPT2Config.preset("tiny", vocab_size=65))
        groups = optim.muon_groups if kind is optim.Muon else optim.decay_groups
        # L-BFGS takes no weight decay.
        optimizer = kind(groups(model, 0.0 if kind is optim.LBFGS else 0.1))
        measured = optimizer.nbytes / model.num_parameters()
        assert f"{measured:.2f}" == told[kind.__name__], kind.__name__


def test_the_table_of_checkpointing_adds_up():
    """Its ratios are those of its numbers, and the plan is within 5% of what was measured."""
    cells = re.findall(
        r"^\| (?:none|every 2nd|all) \| (.*) \|$", section("Activation checkpointing"), re.M
    )
    rows = [[float(re.sub(r"[^\d.]", "", cell)) for cell in row.split("|")] for row in cells]
    assert len(rows) == 3
    for activations, planned, measured, ratio, seconds, more in rows:
        # Both are rounded to a megabyte, 2e-4 of them each, and the ratio to three digits.
        assert measured / planned == pytest.approx(ratio, abs=9e-4)
        assert abs(ratio - 1) < 0.05
        assert planned - activations == pytest.approx(rows[0][1] - rows[0][0], abs=1)
        assert seconds / rows[0][4] == pytest.approx(more, abs=6e-3)


def test_the_numbers_of_adapters_follow_from_the_sizes():
    text, config = section("LoRA"), LlamaConfig.preset("qwen2-1.5b")
    kv = config.kv_head * config.head_dim
    pairs = [(1536, 1536), (1536, kv), (1536, kv), (1536, 1536), (1536, 8960), (1536, 8960)]
    trained = 16 * config.n_layer * sum(a + b for a, b in [*pairs, (8960, 1536)])
    assert f"{trained:,} numbers, {4 * trained / 1e6:.0f} MB" in text
    count = config.count_parameters()
    assert f"q4_K is {4.5 / 8 * count / 1e9:.2f} GB (f32 {4 * count / 1e9:.1f} GB)" in text


def test_everything_is_named():
    for title, names in [
        ("Losses", losses.__all__),
        ("Optimizers", [kind.__name__ for kind in optim.optimizers().values()]),
        ("Schedules", [*optim.schedule_functions(), "warmup", "join", "ReduceOnPlateau"]),
    ]:
        missing = [name for name in names if f"`{name}" not in section(title)]
        assert not missing, title
