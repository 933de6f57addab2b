# SPDX-License-Identifier: MIT
"""The site builds; a broken link, or a public name without a docstring, fails the build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
ROOT = Path(__file__).parents[2]


def build(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", project / "site"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the site is made of; the package is linked."""
    for name in ("docs", "scripts", "patches", "demos"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.patch"))
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    return tmp_path


@pytest.mark.slow
def test_the_site_builds(project: Path) -> None:
    done = build(project)
    assert done.returncode == 0, done.stderr
    page = (project / "site" / "reference" / "pyggml.nn.html").read_text("utf-8")
    assert 'id="pyggml.nn.Linear"' in page


@pytest.mark.slow
def test_a_broken_link_fails(project: Path) -> None:
    with (project / "docs" / "quickstart.md").open("a", encoding="utf-8") as file:
        file.write("\n[gone](guide/gone.md)\n")
    done = build(project)
    assert done.returncode != 0
    assert "guide/gone.md" in done.stderr


@pytest.mark.slow
def test_a_public_name_without_a_docstring_fails(project: Path) -> None:
    (project / "src").unlink()
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("lib", "*.so"))
    path = project / "src" / "pyggml" / "nn" / "functional" / "__init__.py"
    text = path.read_text("utf-8")
    start = text.index('"""', text.index("\ndef layer_norm("))
    path.write_text(text[:start] + "pass" + text[text.index('"""', start + 3) + 3 :], "utf-8")
    done = build(project)
    assert done.returncode != 0
    assert "pyggml.nn.functional.layer_norm is public and has no docstring" in done.stderr
