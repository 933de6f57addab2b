# SPDX-License-Identifier: MIT
"""What the README shows works, and both languages show the same."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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


def test_the_training_script_is_short_and_learns(tmp_path: Path) -> None:
    script = blocks(ENGLISH, "python")[0]
    assert len(script.strip().splitlines()) <= 16
    short = script.replace("steps=200", "steps=30")
    short = short.replace("train_bpe(texts, 2048)", "train_bpe(texts, 300)")
    short = short.replace("texts = embedded_text()", "texts = embedded_text()[:8]")
    short = short.replace("\nTrainer(", "\nresult = Trainer(")
    assert short.count("steps=30,") == short.count("\nresult = ") == 1
    short += "\nprint(result.validation.loss)"
    done = subprocess.run(
        [sys.executable, "-c", short],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The ")
    # Guessing costs ln 300 = 5.7; knowing no more than how frequent each token is, 4.2.
    assert float(done.stdout.splitlines()[-1]) < 4.0
    assert (tmp_path / "model.gguf").read_bytes()[:4] == b"GGUF"


def run(script: str, folder: Path) -> str:
    assert len(script.strip().splitlines()) <= 16
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_for_images_learns(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, level in (("cat", 60), ("dog", 170)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(20):
            pixels = level + rng.integers(0, 60, (int(rng.integers(20, 50)), 40, 3))
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"pets/{name}/{number}.png")
    accuracy, answer = run(blocks(ENGLISH, "python")[1], tmp_path).split(maxsplit=1)
    assert float(accuracy) > 0.8
    assert set(ast.literal_eval(answer)) == {"cat", "dog"}
    assert (tmp_path / "pets.gguf").read_bytes()[:4] == b"GGUF"


def test_the_script_for_a_table_learns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = np.arange(120) % 3
    rows = rng.normal(0, 0.3, (120, 4)) + np.eye(4)[kinds]
    np.savetxt(tmp_path / "flowers.csv", np.column_stack([rows, kinds]), delimiter=",")
    scores = ast.literal_eval(run(blocks(ENGLISH, "python")[2], tmp_path))
    assert scores["accuracy"] > 0.85
    assert scores["f1"] > 0.85


def test_the_tensor_example(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks(ENGLISH, "python")[3], {})
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
