# SPDX-License-Identifier: MIT
"""What the docstrings and docs/guide/data.md show works."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

from pyggml import data

MODULES = sorted(f"pyggml.data.{found.name}" for found in pkgutil.iter_modules(data.__path__))
PAGE = Path(__file__).parent.parent.parent / "docs" / "guide" / "data.md"


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    if name.endswith((".images", ".transforms")):
        pytest.importorskip("PIL.Image")
    if name.endswith((".tokenizer", ".stream", ".records", ".corpus")):
        pytest.importorskip("tokenizers")
    module = importlib.import_module(name)
    names = {**vars(data), **vars(module), "np": np}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def test_public_names_have_examples() -> None:
    """Constants and types aside."""
    types = {"Dataset", "TextTransform", "ImageSource", "ImageTransform"}
    for name in data.__all__:
        if name.isupper() or name in types:
            continue
        assert ">>>" in (getattr(data, name).__doc__ or ""), name


def test_the_page_names_all_that_is_public() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [n for n in data.__all__ if not re.search(rf"\b{n}\b", text)]
    assert not missing


def test_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tokenizers", "PIL.Image"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == 9
    for block in blocks:
        above = "\n" * text.count("\n", 0, block.start(1))  # so that an error names its line
        exec(compile(above + block[1], str(PAGE), "exec"), names)
