# SPDX-License-Identifier: MIT
"""Every demo ends with its OK, within its time; the page shows what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pyggml.cli.demo import demo_folder

from .scripts.loading import load

ROOT = Path(__file__).parent.parent
DEMOS = {path.stem: path for path in sorted((ROOT / "demos").glob("*.py"))}
# "Under a minute on two cores" and room for slower machines than the one where they take 15 at
# most. CPU time, as a clock tells how busy the machine is: other tests run beside these.
CPU_S = 60
# More than five seconds; the others run each time.
LONG = {
    "baby_llama",
    "finetune_bert",
    "gpt2_train",
    "lr_finder",
    "simple_gpt2_train",
    "t5_denoise",
    "train_image",
    "train_text_generation",
}
NEEDS = {
    "train_image": ("sklearn", "PIL"),
    "gpt2_train": ("tokenizers",),
    "t5_denoise": ("tokenizers",),
    "simple_gpt2_train": ("tokenizers",),
    "train_text_generation": ("tokenizers",),
    "lr_finder": ("tokenizers",),
}
ALL_NEED = ("matplotlib",)  # for --plot
IN_INDEX = {"sklearn": "scikit-learn", "PIL": "pillow"}


def call(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What Python did with these arguments."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=1200,
    )


def run(path: Path, *args: object, cwd: Path) -> tuple[str, float]:
    """What a demo printed, and its CPU seconds."""
    for package in (*ALL_NEED, *NEEDS.get(path.stem, ())):
        pytest.importorskip(package)
    before = os.times()
    done = call(path, *args, cwd=cwd)
    after = os.times()
    user_s = after.children_user - before.children_user
    system_s = after.children_system - before.children_system
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("OK "), done.stdout[-500:]
    return done.stdout, user_s + system_s


def normal(text: str) -> list[str]:
    """Lines without their numbers and without what models wrote; of lines alike the first."""
    text = re.sub(r"^---\n.*?\n---$", "---", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(['\"]).*\1", "'...'", text)
    text = re.sub(r"[-+]?\b(\d[\d,.]*(e[-+]?\d+)?|nan|inf)\b", "#", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for i, line in enumerate(lines) if i == 0 or line != lines[i - 1]]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else []) for name in DEMOS],
)
def test_a_demo_comes_to_its_ok_in_its_time_and_prints_what_the_page_shows(
    name: str, tmp_path: Path
) -> None:
    printed, cpu_s = run(DEMOS[name], "--plot", "curve.png", cwd=tmp_path)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert cpu_s < CPU_S
    shown = load(ROOT / "scripts" / "gen_demos_readme.py").outputs()[name]
    if name == "gpu_neural":  # the devices are the machine's own
        assert normal(printed)[-1] == normal(shown)[-1]
    else:
        assert normal(printed) == normal(shown)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("name", DEMOS)
def test_no_seed_is_a_lucky_one(name: str, seed: int, tmp_path: Path) -> None:
    run(DEMOS[name], "--seed", seed, cwd=tmp_path)


def test_what_the_demos_need_comes_with_the_tests() -> None:
    """None of these tests is skipped after `pip install ".[test]"`."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    extras = {
        name: set(re.findall(r'"([\w\-]+(?:\[[\w,]+\])?)', inside))
        for name, inside in re.findall(r"^(\w+) = \[(.*?)\]$", text, re.DOTALL | re.MULTILINE)
    }

    def all_of(name: str) -> set[str]:
        found = set()
        for each in extras[name]:
            inner = re.fullmatch(r"pyggml\[([\w,]+)\]", each)
            found |= set().union(*map(all_of, inner[1].split(","))) if inner else {each}
        return found

    needed = {*ALL_NEED, *(each for packages in NEEDS.values() for each in packages)}
    assert {IN_INDEX.get(each, each) for each in needed} <= all_of("test")


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_is_a_page(name: str) -> None:
    text = DEMOS[name].read_text("utf-8")
    assert len(text.splitlines()) < 120
    assert f"python demos/{name}.py" in text
    assert "--plot" in text
    assert "script_options(" in text  # looks for the plot's folder before the work
    assert "OK " in text
    assert "FAILED: " in text


def test_the_page_has_every_demo_as_it_describes_itself() -> None:
    script = load(ROOT / "scripts" / "gen_demos_readme.py")
    assert sorted(script.ORDER) == sorted(DEMOS)
    printed = script.outputs()
    assert sorted(printed) == sorted(DEMOS)
    assert (ROOT / "demos" / "README.md").read_text("utf-8") == script.page(printed)
    assert all("\nOK " in f"\n{text}" for text in printed.values())
    # What the page's head says of their time.
    assert "less than half a minute" in script.HEAD
    took = {name: float(re.search(r" ([\d.]+) s$", text)[1]) for name, text in printed.items()}
    assert max(took.values()) < 30, took


SPOILED = {
    "simple_mlp": (
        {"STEPS, LOSS = 500, 0.05": "STEPS, LOSS = 10, 0.05"},
        "FAILED: the loss must be below 0.05; got 0.",
    ),
    # Nothing is handed on from the reading, which therefore need not take its time.
    "finetune_bert": (
        {"model.bert.load_state_dict(": "dict(", "0.1, 450, 16": "0.1, 10, 16"},
        "FAILED: reading must add 10%; from",
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else []) for name in SPOILED],
)
def test_a_demo_that_does_not_learn_fails(name: str, tmp_path: Path) -> None:
    text = DEMOS[name].read_text("utf-8")
    changes, said = SPOILED[name]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    spoiled = tmp_path / "spoiled.py"
    spoiled.write_text(text, "utf-8")
    done = call(spoiled, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(said), done.stderr
    assert "OK" not in done.stdout


def fails(done: subprocess.CompletedProcess[str]) -> str:
    """The one line with which it ended, before it printed anything."""
    assert done.returncode == 1, done.stdout[-500:] + done.stderr[-500:]
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


# A finder of modules that does not find one.
WITHOUT = """
import runpy, sys
sys.modules[sys.argv[1]] = None
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_what_a_demo_lacks_is_told_in_a_line_before_the_work(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    mlp, image = DEMOS["simple_mlp"], DEMOS["train_image"]
    line = fails(call(mlp, "--plot", "no/such/p.png", cwd=tmp_path))
    assert line.startswith("error: ")
    assert re.search(r"there is no folder no.such: make it first$", line)
    line = fails(call("-c", WITHOUT, "matplotlib", mlp, "--plot", "p.png", cwd=tmp_path))
    assert line == 'error: plot: needs the package matplotlib; pip install "pyggml[cli]"'
    line = fails(call("-c", WITHOUT, "sklearn", image, cwd=tmp_path))
    assert "needs the package scikit-learn" in line
    line = fails(call(image, "--mnist", "nowhere", cwd=tmp_path))
    assert "must hold train-images-idx3-ubyte" in line
    assert call(mlp, "--seed", "-1", cwd=tmp_path).returncode == 2


@pytest.fixture(scope="module")
def digits_as_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits, enlarged to 28 x 28, under MNIST's names and in its layout."""
    datasets = pytest.importorskip("sklearn.datasets")
    folder = tmp_path_factory.mktemp("mnist")
    digits = datasets.load_digits()
    pixels = np.kron(digits.images * 255 / 16, np.ones((3, 3))).round().astype(np.uint8)
    pixels = np.pad(pixels, ((0, 0), (2, 2), (2, 2)))
    order = np.random.default_rng(0).permutation(len(pixels))
    for part, rows in (("t10k", order[:359]), ("train", order[359:])):
        head = np.array([0x803, len(rows), 28, 28], ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + pixels[rows].tobytes())
        head = np.array([0x801, len(rows)], ">i4").tobytes()
        labels = digits.target[rows].astype(np.uint8).tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head + labels)
    return folder


@pytest.mark.slow
def test_train_image_learns_from_files_as_mnists(digits_as_mnist: Path, tmp_path: Path) -> None:
    printed, cpu_s = run(DEMOS["train_image"], "--mnist", digits_as_mnist, cwd=tmp_path)
    assert "1,438 images of 28 x 28 to learn, 359 for validation" in printed
    assert cpu_s < CPU_S


def test_a_label_beyond_the_digits_is_told_before_the_work(
    digits_as_mnist: Path, tmp_path: Path
) -> None:
    for file in digits_as_mnist.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + bytes([12]))
    line = fails(call(DEMOS["train_image"], "--mnist", tmp_path, cwd=tmp_path))
    assert re.search(r"labels must be below the 10 classes; got 12 at 358$", line)


def test_the_folder_is_found() -> None:
    assert {path.stem for path in demo_folder().glob("*.py")} == set(DEMOS)


def test_they_are_installed() -> None:
    """Where CMake puts them, `pyggml demo` looks for them."""
    cmake = (ROOT / "CMakeLists.txt").read_text("utf-8")
    assert re.search(r"install\(DIRECTORY demos/ DESTINATION pyggml/demos COMPONENT pyggml", cmake)


def test_the_command_lists_and_runs_them(tmp_path: Path) -> None:
    pytest.importorskip("typer")

    def demo(*args: str) -> subprocess.CompletedProcess[str]:
        return call("-m", "pyggml.cli", "demo", *args, cwd=tmp_path)

    listed = demo()
    assert [line.split()[0] for line in listed.stdout.splitlines()] == sorted(DEMOS)
    began = time.time()
    ran = demo("simple-mlp", "--plot", "loss.png")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("OK ")
    assert (tmp_path / "loss.png").stat().st_mtime >= began - 1
    unknown = demo("nothing")
    assert unknown.returncode == 2
    assert "demo must be one of baby_llama" in unknown.stderr
    assert "--plot FILE" in demo("simple_mlp", "--help").stdout
    assert demo("simple_mlp", "--nonsense").returncode == 2
