# SPDX-License-Identifier: MIT
"""docs/models.md works and names every model and preset with its size; so do the docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import models, nn, ops
from pyggml.models import MODELS, build

from ..scripts import load

ROOT = Path(__file__).parents[2]
PAGE, SCRIPT = ROOT / "docs" / "models.md", ROOT / "benchmarks" / "models.py"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT[TEXT.index("## What a model takes") :].splitlines()
    if line.startswith("| `")
]


def test_the_page_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.finditer(r"```python\n(.*?)```", TEXT, re.DOTALL):
        above = "\n" * TEXT.count("\n", 0, block.start(1))  # so that an error names its line
        exec(compile(above + block[1], str(PAGE), "exec"), names)
    assert names["losses"][-1] < names["losses"][0]
    assert names["vectors"].shape == (2, 64)


def test_every_model_is_described_measured_and_exported():
    described = TEXT[TEXT.index("| model | what it is") : TEXT.index("## The Llama family")]
    measured = TEXT[TEXT.index("| model | preset | parameters | batch") :]
    for arch, kind in MODELS.items():
        assert f"| `{arch}` | `{kind.__name__}({kind.config_class.__name__})`" in described
        assert f"| `{arch}` | `" in measured
        assert {kind.__name__, kind.config_class.__name__} <= set(models.__all__)


def test_every_preset_has_its_size():
    rows = {(row[0], row[1]) for row in ROWS if len(row) in (4, 6)}
    for arch, kind in MODELS.items():
        if arch in ("bert-mlm", "bert-classifier"):
            continue  # their presets are BERT's
        for preset in kind.config_class.PRESETS:
            assert (f"`{arch}`", f"`{preset}`") in rows, f"{arch} {preset}"


@pytest.mark.skipif(not SCRIPT.is_file(), reason="benchmarks/ is not here")
def test_what_was_measured_is_what_the_benchmark_measures():
    rows = [row for row in ROWS if len(row) == 6]
    measured = load(SCRIPT).ROWS
    assert [row[:2] for row in rows] == [[f"`{r[0]}`", f"`{r[1]}`"] for r in measured]
    for row, (arch, preset, fields, *_) in zip(rows, measured, strict=True):
        assert f"{build(arch, preset, **fields).num_parameters():,}" == row[2], preset


def test_what_was_computed_is_true():
    for row in ROWS:
        if len(row) != 4:
            continue
        arch, preset, count = row[0].strip("`"), row[1].strip("`"), int(row[2].replace(",", ""))
        kind = MODELS[arch].config_class
        if hasattr(kind, "count_parameters"):
            assert kind.preset(preset).count_parameters() == count, preset
        else:
            assert build(arch, preset).num_parameters() == count, preset
        assert row[3] == f"{16 * count / 2**20:,.1f}"


def modules_of(package):
    names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    return [f"{package.__name__}.{name}" for name in names]


@pytest.mark.parametrize("name", [*modules_of(models), *modules_of(nn)])
def test_examples(name):
    module = importlib.import_module(name)
    pg.seed(0)
    names = {n: getattr(nn, n) for n in nn.__all__}
    names |= {n: getattr(nn.functional, n) for n in nn.functional.__all__}
    names |= {n: getattr(nn.losses, n) for n in nn.losses.__all__}
    names |= {n: getattr(models, n) for n in models.__all__}
    names |= {"np": np, "pg": pg, "tensor": pg.tensor, "ones": pg.ones, "zeros": pg.zeros}
    names |= {"ops": ops, "gelu": ops.gelu, **vars(module)}
    names["model"] = build("llama", "tiny", vocab_size=65)
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for each in found:
        runner.run(each)
    assert runner.failures == 0


def test_public_models_have_examples():
    types = {"Model", "LanguageModel", "ImageModel", "ModelConfig", "ClassifierConfig"}
    for name in models.__all__:
        if name.isupper() and name.endswith("MODELS"):
            continue
        if name not in types and name != "load":
            assert ">>>" in (getattr(models, name).__doc__ or ""), name
