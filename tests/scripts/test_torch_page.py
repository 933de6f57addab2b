# SPDX-License-Identifier: MIT
"""docs/guide/pytorch.md is what scripts/gen_torch_page.py writes."""

from __future__ import annotations

from pathlib import Path

from .loading import load

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    assert load(ROOT / "scripts" / "gen_torch_page.py").main(["--check"]) == 0
