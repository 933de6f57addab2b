# SPDX-License-Identifier: MIT
"""The commands that look into files."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pyggml as pg
from pyggml.cli.app import app
from pyggml.data import Tokenizer
from pyggml.models import build

SIZES = {"vocab_size": 40, "context": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}


@pytest.fixture
def model(tmp_path):
    pg.seed(1)
    made = build("llama", SIZES)
    made.save(tmp_path / "model.gguf", Tokenizer.chars(["hello there, general text"]))
    return made


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_check_tells_what_llama_cpp_would_say(model, tmp_path):
    done = run("check", tmp_path / "model.gguf")
    assert (done.exit_code, "loads it" in done.stdout) == (0, True)
    model.save(tmp_path / "bare.gguf")
    done = run("check", tmp_path / "bare.gguf", "--json")
    (found,) = json.loads(done.stdout)
    assert (done.exit_code, found["kind"], found["where"]) == (1, "refused", "tokenizer.ggml.model")
    assert run("check", tmp_path / "bare.gguf").stdout.startswith("refused: tokenizer.ggml.model")


def test_check_finds_weights_that_are_no_numbers(model, tmp_path):
    model.model.norm.weight.copy_(np.full(32, np.nan, np.float32))
    model.save(tmp_path / "bad.gguf", Tokenizer.chars(["hello there, general text"]))
    assert run("check", tmp_path / "bad.gguf").exit_code == 0
    done = run("check", tmp_path / "bad.gguf", "--weights")
    assert done.exit_code == 1
    assert "output_norm.weight (32)" in done.stderr
    assert run("check", tmp_path / "none.gguf").exit_code == 1
