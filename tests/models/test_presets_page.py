# SPDX-License-Identifier: MIT
"""docs/reference/presets.md lists every preset with the size that is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyggml import nn
from pyggml.models import MODELS, build

from ..scripts.loading import load

ROOT = Path(__file__).parents[2]
PAGE, SCRIPT = ROOT / "docs" / "reference" / "presets.md", ROOT / "benchmarks" / "models.py"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| `")
]


@pytest.mark.skipif(not SCRIPT.is_file(), reason="benchmarks/ is not here")
def test_the_tables_are_those_of_the_benchmark():
    """All but what was measured follows from the presets; each of them stands in one table."""
    script = load(SCRIPT)
    every = list(script.presets())
    assert {(p.arch, p.name) for p in every} >= {
        (arch, name)
        for arch, kind in MODELS.items()
        # Their presets are the bare model's.
        if not arch.endswith(("-mlm", "bert-classifier", "bert-token-classifier"))
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
@pytest.mark.slow
def test_sizes_are_those_of_what_is_built():
    for preset in load(SCRIPT).presets():
        if preset.parameters < 2e7:
            with nn.init.empty_weights():
                model = build(preset.arch, preset.name)
            assert model.num_parameters() == preset.parameters, preset
            assert preset.out == getattr(model.config, "vocab_size", None) or model.config.classes
