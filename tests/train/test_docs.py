# SPDX-License-Identifier: MIT
"""docs/guide/training.md runs from beginning to end, and names every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyggml.train import Callback, TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "training.md"


def test_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["result"].tokens > 0
    assert (tmp_path / "loss.png").exists()
    assert names["again"].step == 20


def test_the_file_of_options_is_one(tmp_path):
    from pyggml.recipes import read_config

    block = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "run.toml").write_text(block)
    config = TrainConfig.from_dict(read_config(tmp_path / "run.toml"))
    assert config.optimizer_options == {"momentum": 0.9}


def test_every_event_has_a_word_for_it():
    events = [name[3:] for name in vars(Callback) if name.startswith("on_")]
    text = PAGE.read_text(encoding="utf-8")
    said = text[text.index("**Callbacks**") : text.index("## Logs")]
    for event in events:
        assert event.split("_")[0][:8] in said, event
