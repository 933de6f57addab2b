# SPDX-License-Identifier: MIT
"""Both languages of the README show the same code; `test_pages.py` runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text("utf-8"), re.DOTALL)


def without_comments(text: str) -> str:
    return re.sub(r" *#.*", "", text)


@pytest.mark.parametrize("language", ["python", "sh"])
def test_both_languages_show_the_same_code(language: str) -> None:
    english, chinese = blocks(ENGLISH, language), blocks(CHINESE, language)
    assert english
    assert [without_comments(b) for b in english] == [without_comments(b) for b in chinese]


def test_what_the_first_command_leaves_is_not_kept() -> None:
    """Neither git nor the source package takes up the default folder of results."""
    from pyggml.train import TrainConfig

    folder = Path(TrainConfig.artifact_dir).parts[0]
    assert f"/{folder}/" in (ROOT / ".gitignore").read_text().splitlines()
    exclude = re.search(r"sdist\.exclude = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S)
    assert exclude is not None
    assert f'"{folder}"' in exclude[1]
