# SPDX-License-Identifier: MIT
"""Both languages of the README show the same code; `test_pages.py` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyggml as pg

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


def test_both_languages_link_to_the_same_pages() -> None:
    english, chinese = (
        re.findall(r"\]\((?!README)(.*?)\)", path.read_text("utf-8")) for path in (ENGLISH, CHINESE)
    )
    assert english == chinese


@pytest.mark.parametrize("pattern", [r"^#+ ", r"`[^`\n]+`", r"\d+(?:\.\d+)?"])
def test_both_languages_have_the_same_sections_commands_and_figures(pattern: str) -> None:
    english, chinese = (
        re.sub(r"```.*?```|\]\(.*?\)", "", path.read_text("utf-8"), flags=re.DOTALL)
        for path in (ENGLISH, CHINESE)
    )
    found = [sorted(re.findall(pattern, text, re.MULTILINE)) for text in (english, chinese)]
    assert found[0] == found[1] != []


def test_python_in_the_project_folder_finds_the_installed_package(tmp_path: Path) -> None:
    """The README's examples run there too: nothing in the folder hides the package."""
    code = "import pyggml; print(pyggml.__file__)"
    found = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        for folder in (ROOT, tmp_path)
    ]
    assert found[0] == found[1]
    assert not (ROOT / "pyggml").exists()


def test_the_changelog_names_ggml_and_counts_the_patches() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    version = pg.ggml_version().partition("-")[0]
    count = len(list((ROOT / "patches").glob("*.patch")))
    assert f"ggml {version} " in text
    assert f"the {count} patches" in text


def test_what_the_first_command_leaves_is_not_kept() -> None:
    """Neither git nor the source package takes up the default folder of results."""
    from pyggml.recipes import LLMConfig

    folder = Path(LLMConfig.options()["artifact_dir"].default).parts[0]
    assert f"/{folder}/" in (ROOT / ".gitignore").read_text().splitlines()
    exclude = re.search(r"sdist\.exclude = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S)
    assert exclude is not None
    assert f'"{folder}"' in exclude[1]
