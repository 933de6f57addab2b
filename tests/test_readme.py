# SPDX-License-Identifier: MIT
"""What the README shows works, and both languages show the same."""

from __future__ import annotations

import re
import subprocess
import sys
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


def test_the_training_script_is_short_and_runs(tmp_path: Path) -> None:
    script = blocks(ENGLISH, "python")[0]
    assert len(script.strip().splitlines()) <= 16
    short = script.replace("steps=200", "steps=2").replace(
        "texts = embedded_text()", "texts = embedded_text()[:8]"
    )
    short = short.replace("train_bpe(texts, 2048)", "train_bpe(texts, 300)")
    assert short.count("steps=2,") == 1
    done = subprocess.run(
        [sys.executable, "-c", short],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The ")
    assert (tmp_path / "model.gguf").read_bytes()[:4] == b"GGUF"


def test_the_tensor_example(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks(ENGLISH, "python")[1], {})
    # loss = mean((-1.5)^2, (-2.5)^2); d/dw = x^T (2 (x w) / 2)
    assert capsys.readouterr().out.split(maxsplit=1) == ["4.25", "[[-9.0], [-13.0]]\n"]


def test_what_the_first_command_leaves_is_not_kept() -> None:
    """Neither git nor the source package takes up the default folder of results."""
    from pyggml.train import TrainConfig

    folder = Path(TrainConfig.artifact_dir).parts[0]
    assert f"/{folder}/" in (ROOT / ".gitignore").read_text().splitlines()
    exclude = re.search(r"sdist\.exclude = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S)
    assert exclude is not None
    assert f'"{folder}"' in exclude[1]
