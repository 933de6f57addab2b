# SPDX-License-Identifier: MIT
"""Each patch names its tests in the form that a script reads; each prefix passes them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .loading import load

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "patches_check.py"
PATCHES = sorted((ROOT / "patches").glob("[0-9]*.patch"))

pytestmark = pytest.mark.skipif(
    not (SCRIPT.is_file() and PATCHES), reason="scripts/ or patches/ is not here"
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load(SCRIPT)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.name[:4])
def test_a_patch_names_its_tests(script: ModuleType, patch: Path) -> None:
    assert script.commands(patch)


def write(folder: Path, message: str) -> Path:
    path = folder / "0001-one.patch"
    path.write_text(
        f"From 0\nSubject: [PATCH] one\n\n{message}\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n"
        "@@ -1 +1 @@\n-a\n+Tests: test-backend-ops grad -o NOT_THIS\n"
    )
    return path


def test_commands_on_one_line_and_on_two(script: ModuleType, tmp_path: Path) -> None:
    patch = write(
        tmp_path,
        "Why.\nTests: test-backend-ops test -o A_BACK; test-backend-ops grad -o A,B_2;\n"
        "  test-backend-ops grad -o C -p 'type=f32.*n=[12]'; test-packed-gemm; test-grad-graph",
    )
    assert [str(command) for command in script.commands(patch)] == [
        "test -o A_BACK", "grad -o A,B_2", "grad -o C -p 'type=f32.*n=[12]'", "test-packed-gemm",
        "test-grad-graph",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Why.", "must have one `Tests: `; it has 0"),
        ("Tests: test-opt", "got 'test-opt'"),
        ("Tests: test-backend-ops perf -o A", "got 'test-backend-ops perf -o A'"),
        ("Tests: test-backend-ops grad -o A;", "got 'test-backend-ops grad -o A;'"),
        ("Tests: test-backend-ops grad -o A\nTests: test-backend-ops grad -o B", "it has 2"),
    ],
)
def test_another_form_is_refused(
    script: ModuleType, tmp_path: Path, message: str, told: str
) -> None:
    with pytest.raises(script.PatchError, match=r"0001-one\.patch") as raised:
        script.commands(write(tmp_path, message))
    assert told in str(raised.value)


def programs(folder: Path, text: str, status: int) -> Path:
    for name in ("test-backend-ops", "test-grad-graph"):
        path = folder / name
        path.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {status}\n")
        path.chmod(0o755)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the tests")
def test_a_run_counts_only_with_cases_of_each_op(script: ModuleType, tmp_path: Path) -> None:
    # The gradient mode prints each case twice: before it runs it, and with what came.
    lines = (
        r"  NORM(type=f32,ne=[64]): \033[1;32mOK\033[0m\n"
        r"  NORM(type=f32,ne=[64]): \033[1;32mOK\033[0m\n"
        r"  SIN(ne=[10]): OK\n  SUM(ne=[10]): OK\n"
        r"  NORM(type=f16): not supported [CPU]\n"
        r"  RMS_NORM(ne=[9999]): OK\n  RMS_NORM(ne=[9999]): skipping large tensors for speed\n"
        r"  2/2 tests passed\n  Backend CPU: OK\n"
    )
    passing = programs(tmp_path, lines, 0)
    assert script.check(passing, script.Command("test-backend-ops", "grad", ("NORM",))) == 2
    assert script.check(passing, script.Command("test-backend-ops", "grad", ("SIN",))) == 2
    with pytest.raises(script.PatchError, match="no case of SUM ran"):
        script.check(passing, script.Command("test-backend-ops", "grad", ("SUM",)))
    with pytest.raises(script.PatchError, match="no case of RMS_NORM ran"):
        script.check(passing, script.Command("test-backend-ops", "grad", ("NORM", "RMS_NORM")))
    spaced = tmp_path / "a folder"
    spaced.mkdir()
    told = "exit status 3: '" + re.escape(str(spaced)) + "/test-backend-ops' grad -o NORM -b CPU"
    with pytest.raises(script.PatchError, match=told):
        script.check(
            programs(spaced, lines, 3), script.Command("test-backend-ops", "grad", ("NORM",))
        )


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the tests")
def test_a_program_of_our_own_counts_its_cases(script: ModuleType, tmp_path: Path) -> None:
    command = script.Command("test-grad-graph")
    assert script.check(programs(tmp_path, r"  one: OK\n  two: OK\n0 failed\n", 0), command) == 2
    with pytest.raises(script.PatchError, match="test-grad-graph: no case ran"):
        script.check(programs(tmp_path, r"0 failed\n", 0), command)
    with pytest.raises(script.PatchError, match="exit status 1"):
        script.check(programs(tmp_path, r"  one: OK\n  two: FAIL\n", 1), command)


def test_files_that_stay_the_same_keep_their_times(script: ModuleType, tmp_path: Path) -> None:
    tree, new = tmp_path / "tree", tmp_path / "new"
    for folder, files in [(tree, {"a": "1", "b": "2", "c": "3"}), (new, {"a": "1", "b": "4"})]:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    before = (tree / "a").stat().st_mtime_ns
    script.update(tree, new)
    assert (tree / "a").stat().st_mtime_ns == before
    assert {p.name: p.read_text() for p in tree.iterdir()} == {"a": "1", "b": "4"}


def test_what_passed_is_skipped_until_its_sources_change(
    script: ModuleType, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    for name in ("src/ggml.c", "src/ggml-cpu/ops.cpp", "src/ggml-cuda/norm.cu"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("1")
    first = script.digest(tree)
    norm, sum_ = (script.Command("test-backend-ops", "test", (op,)) for op in ("NORM", "SUM"))
    script.Passed(tmp_path / "passed.json").note(first, norm, 3)

    passed = script.Passed(tmp_path / "passed.json")
    assert (passed.cases(first, norm), passed.cases(first, sum_)) == (3, None)
    (tree / "src/ggml-cuda/norm.cu").write_text("2")
    assert script.digest(tree) == first, "CUDA is not built here"
    (tree / "src/ggml-cpu/ops.cpp").write_text("2")
    assert passed.cases(script.digest(tree), norm) is None
    passed.forget(first)
    assert passed.cases(first, norm) is None


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the tests")
def test_metal_files_that_do_not_compile_are_named(script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "ggml-metal"
    folder.mkdir(parents=True)
    (folder / "good.cpp").write_text("std::unique_ptr<int> one;\n")
    script.compile_metal(tmp_path)
    (folder / "stray.cpp").write_text("int f();\n}\n")
    with pytest.raises(script.PatchError, match=r"stray\.cpp"):
        script.compile_metal(tmp_path)


def test_a_run_notes_each_command_that_passes(script: ModuleType, tmp_path: Path) -> None:
    folder = programs(tmp_path, r"  NORM(n=1): OK\n", 0)
    passed = script.Passed(tmp_path / "passed.json")
    norm, add = (script.Command("test-backend-ops", "test", (op,)) for op in ("NORM", "ADD"))
    with pytest.raises(script.PatchError, match="no case of ADD ran"):
        script.run(folder, "hash", [norm, add], passed)
    assert passed.cases("hash", norm) == 1
    assert passed.cases("hash", add) is None


def test_a_number_beyond_the_series_is_refused(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.main(["--only", "9999"])
    assert f"numbered from 1 to {len(PATCHES)}; got 9999" in capsys.readouterr().err


def test_a_root_without_patches_is_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--root", str(tmp_path / "none")]) == 1
    assert "there is no such folder" in capsys.readouterr().err
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "ggml.toml").write_text("")
    assert script.main(["--root", str(tmp_path)]) == 1
    assert f"{tmp_path / 'patches'} must have patches" in capsys.readouterr().err


needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("cmake", "ninja", "git")),
    reason="needs cmake, ninja and git",
)


@needs_tools
@pytest.mark.slow
def test_every_prefix_builds_and_passes_its_tests() -> None:
    """Half an hour to an hour on two cores; what passed before is skipped."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(PATCHES)} prefixes build and pass" in done.stdout


@needs_tools
@pytest.mark.slow
def test_ggml_finds_every_gradient_right(script: ModuleType) -> None:
    """`test-backend-ops grad -b CPU` of the patched tree, from the first op to the last."""
    folder = ROOT / "build" / "ggml-tests"
    for command in (
        [
            "cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", "-DPYGGML_BUILD_GGML_TESTS=ON",
            f"-DPython_EXECUTABLE={sys.executable}",
        ],
        ["cmake", "--build", str(folder), "--target", "ggml-tests", "--", "-j2"],
        [str(folder / "bin" / "test-backend-ops"), "grad", "-b", "CPU"],
    ):  # fmt: skip
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace"
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "Backend CPU: " in done.stdout
    assert "FAIL" not in done.stdout
    passed = script.cases(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout), "grad")
    assert len(passed) >= 1940  # as patches/README.md says
    assert len(set(passed)) >= 91
