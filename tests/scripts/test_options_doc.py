# SPDX-License-Identifier: MIT
"""docs/reference/options.md is what scripts/gen_options_doc.py writes."""

from __future__ import annotations

from pathlib import Path

from pyggml.recipes import ImageConfig, LLMConfig

from .loading import load

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date_and_has_every_option():
    script = load(ROOT / "scripts" / "gen_options_doc.py")
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(), "run `just options-doc`"
    for name in {*LLMConfig.options(), *ImageConfig.options()}:
        assert f"`{name}`" in text
