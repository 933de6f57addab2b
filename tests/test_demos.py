# SPDX-License-Identifier: MIT
"""Every demo ends with its OK, within its time; the page shows what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyggml.cli.demo import demo_folder

from .scripts import load

ROOT = Path(__file__).parent.parent
DEMOS = {path.stem: path for path in sorted((ROOT / "demos").glob("*.py"))}
# Two cores for a minute; a busy machine makes the clock a poor judge.
CPU_S = 120
NEEDS = {
    "train_image": ("sklearn", "PIL"),
    "gpt2_train": ("tokenizers",),
    "finetune_bert": ("tokenizers",),
    "t5_denoise": ("tokenizers",),
    "simple_gpt2_train": ("tokenizers",),
    "train_text_generation": ("tokenizers",),
    "lr_finder": ("tokenizers",),
}


def run(path: Path, *args: str, cwd: Path) -> tuple[str, float]:
    """What a demo printed, and its CPU seconds."""
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    before = os.times()
    done = subprocess.run(
        [sys.executable, str(path), *args],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=1200,
    )
    after = os.times()
    user_s = after.children_user - before.children_user
    system_s = after.children_system - before.children_system
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("OK "), done.stdout[-500:]
    return done.stdout, user_s + system_s


def normal(text: str) -> list[str]:
    """Lines without their numbers and without what models wrote."""
    text = re.sub(r"^---\n.*?\n---$", "---", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(['\"]).*\1", "'...'", text)
    text = re.sub(r"[-+]?\b(\d[\d,.]*(e[-+]?\d+)?|nan|inf)\b", "#", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_runs_to_its_ok(name: str, tmp_path: Path) -> None:
    quick = ["--quick"] if "--quick" in DEMOS[name].read_text("utf-8") else []
    run(DEMOS[name], *quick, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_runs_whole_in_its_time_and_prints_what_the_page_shows(
    name: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    printed, cpu_s = run(DEMOS[name], "--plot", "curve.png", cwd=tmp_path)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert cpu_s < CPU_S
    shown = load(ROOT / "scripts" / "gen_demos_readme.py").outputs()[name]
    # Devices and diverged runs are the machine's own.
    if name not in ("gpu_neural", "lr_finder"):
        assert normal(printed) == normal(shown)


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_is_a_page(name: str) -> None:
    text = DEMOS[name].read_text("utf-8")
    assert len(text.splitlines()) < 120
    assert f"python demos/{name}.py" in text
    assert "--plot" in text
    assert "OK " in text
    assert "FAILED: " in text


def test_the_page_has_every_demo_as_it_describes_itself() -> None:
    script = load(ROOT / "scripts" / "gen_demos_readme.py")
    assert sorted(script.ORDER) == sorted(DEMOS)
    printed = script.outputs()
    assert sorted(printed) == sorted(DEMOS)
    assert (ROOT / "demos" / "README.md").read_text("utf-8") == script.page(printed)
    assert all("\nOK " in f"\n{text}" for text in printed.values())


def test_a_demo_that_does_not_learn_fails(tmp_path: Path) -> None:
    text = DEMOS["simple_mlp"].read_text("utf-8")
    spoiled = tmp_path / "spoiled.py"
    spoiled.write_text(text.replace("STEPS, LOSS = 500, 0.05", "STEPS, LOSS = 10, 0.05"), "utf-8")
    done = subprocess.run(
        [sys.executable, str(spoiled)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1
    assert done.stderr.startswith("FAILED: the loss must be below 0.05; got 0.")
    assert "OK" not in done.stdout


def test_the_folder_is_found() -> None:
    assert {path.stem for path in demo_folder().glob("*.py")} == set(DEMOS)


def test_they_are_installed() -> None:
    """Where CMake puts them, `pyggml demo` looks for them."""
    cmake = (ROOT / "CMakeLists.txt").read_text("utf-8")
    assert re.search(r"install\(DIRECTORY demos/ DESTINATION pyggml/demos COMPONENT pyggml", cmake)


def test_the_command_lists_and_runs_them(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    command = [sys.executable, "-m", "pyggml.cli", "demo"]

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    listed = call()
    assert [line.split()[0] for line in listed.stdout.splitlines()] == sorted(DEMOS)
    began = time.time()
    ran = call("simple-mlp", "--plot", "loss.png")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("OK ")
    assert (tmp_path / "loss.png").stat().st_mtime >= began - 1
    unknown = call("nothing")
    assert unknown.returncode == 2
    assert "demo must be one of baby_llama" in unknown.stderr
    assert "--plot FILE" in call("simple_mlp", "--help").stdout
    assert call("simple_mlp", "--nonsense").returncode == 2
