# SPDX-License-Identifier: MIT
"""docs/guide/models.md names every model and preset with its size; its examples run."""

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

from ..scripts.loading import load

ROOT = Path(__file__).parents[2]
PAGE, SCRIPT = ROOT / "docs" / "guide" / "models.md", ROOT / "benchmarks" / "models.py"
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
    measured = TEXT[TEXT.index("| model | preset | vocabulary | parameters | batch") :]
    for arch, kind in MODELS.items():
        assert f"| `{arch}` | `{kind.__name__}({kind.config_class.__name__})`" in described
        assert f"| `{arch}` | `" in measured
        assert {kind.__name__, kind.config_class.__name__} <= set(models.__all__)


@pytest.mark.skipif(not SCRIPT.is_file(), reason="benchmarks/ is not here")
def test_the_tables_are_those_of_the_benchmark():
    """All but what was measured follows from the presets; each of them stands in one table."""
    script = load(SCRIPT)
    every = list(script.presets())
    assert {(p.arch, p.name) for p in every} >= {
        (arch, name)
        for arch, kind in MODELS.items()
        if arch not in ("bert-mlm", "bert-classifier")  # their presets are BERT's
        for name in kind.config_class.PRESETS
    }
    trained = [[*p.cells(), p.batch()] for p in every if p.is_trained]
    assert [row[:5] for row in ROWS if len(row) == 8] == trained
    sized = [[*p.cells(), f"{16 * p.parameters / 2**20:,.1f}"] for p in every if not p.is_trained]
    assert [row for row in ROWS if len(row) == 5] == sized
    assert len(ROWS) == len(every)
    for name, body in (("sized", script.SIZED), ("trained", script.TRAINED)):
        assert f"<!-- {name}: benchmarks/models.py -->\n{body}\n|---" in TEXT


@pytest.mark.skipif(not SCRIPT.is_file(), reason="benchmarks/ is not here")
def test_sizes_are_those_of_what_is_built():
    for preset in load(SCRIPT).presets():
        if preset.parameters < 2e7:
            with nn.init.empty_weights():
                model = build(preset.arch, preset.name)
            assert model.num_parameters() == preset.parameters, preset
            assert preset.out == getattr(model.config, "vocab_size", None) or model.config.classes


def test_what_was_measured_can_be():
    number = re.compile(r"[\d,]+(\.\d+)?")
    for row in ROWS:
        if len(row) != 8:
            continue
        parameters, planned, grown, speed = (
            float(number.match(row[i])[0].replace(",", "")) for i in (3, 5, 6, 7)
        )
        assert planned > 16 * parameters / 2**20, row
        # A process takes little more than is planned: code, threads, and how weights are drawn.
        assert planned * 0.9 - 5 < grown < planned * 1.3 + 60, row
        assert speed > 0, row


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
