# SPDX-License-Identifier: MIT
"""The bytes of an optimizer's state are those that docs/guide/loop.md lists."""

import re
from pathlib import Path

import numpy as np

import pyggml as pg
from pyggml import nn, optim
from pyggml.models import GPT2, GPT2Config

TEXT = (Path(__file__).parents[2] / "docs" / "guide" / "loop.md").read_text("utf-8")


def test_the_bytes_of_the_state_are_those_of_the_table():
    want = {"SGD": 0, "Adam": 8, "AdamW": 8, "AdamW8bit": 3 * 34 / 32, "RMSprop": 4, "Adagrad": 4}
    want |= {"Adafactor": 2 * 4 / 64, "Lion": 4, "Muon": 4, "LBFGS": 4 * (2 * 10 + 8)}
    for kind in optim.optimizers().values():
        w = nn.Parameter(np.zeros((64, 64), np.float32))
        assert kind([w]).nbytes / w.numel() == want[kind.__name__], kind.__name__
    momentum = optim.SGD([nn.Parameter(np.zeros((8, 8)))], momentum=0.5)
    both = optim.RMSprop([nn.Parameter(np.zeros((8, 8)))], momentum=0.5, centered=True)
    assert (momentum.nbytes, both.nbytes) == (4 * 64, 12 * 64)


def test_the_bytes_measured_on_a_model_are_those_of_the_table():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| ([\d.]+) \|$", TEXT, re.M)
    told = {name: value for names, value in rows for name in re.findall(r"\w+", names)}
    for kind in optim.optimizers().values():
        pg.seed(0)
        model = GPT2(GPT2Config.preset("tiny", vocab_size=65))
        groups = optim.muon_groups if kind is optim.Muon else optim.decay_groups
        # L-BFGS takes no weight decay.
        optimizer = kind(groups(model, 0.0 if kind is optim.LBFGS else 0.1))
        measured = optimizer.nbytes / model.num_parameters()
        assert f"{measured:.2f}" == told[kind.__name__], kind.__name__
