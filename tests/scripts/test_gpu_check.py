# SPDX-License-Identifier: MIT
"""The check for a machine with a GPU: what it covers, and what it keeps of its stages."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from .gpu_logs import PASSED, ROOT, SCRIPT, call, patches_check, report, training

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("bash") is None, reason="bash and timeout as of Linux"
)


def listed(name: str) -> set[str]:
    """The ops of a variable of the script."""
    lines = re.findall(
        r"^((?:ops|products|attention|backward|grads)=\S+)$", SCRIPT.read_text(), re.M
    )
    done = subprocess.run(
        ["bash", "-c", "\n".join([*lines, f"echo ${name}"])],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.strip().split(","))


def cuda_patches() -> list[Path]:
    paths = sorted((ROOT / "patches").glob("*.patch"))
    return [path for path in paths if "+++ b/src/ggml-cuda/" in path.read_text()]


@pytest.mark.parametrize("patch", cuda_patches(), ids=lambda path: path.name[:4])
def test_every_op_of_the_patches_is_run(patch: Path) -> None:
    """What a patch of the CUDA backend dispatches to a kernel, and what shows it, is in a list."""
    tested = listed("ops") | listed("products") | listed("attention")
    grads = listed("grads")
    by_gradient = {f"{op}_BACK" for op in listed("backward") & grads}
    dispatched = re.findall(
        r"^\+ +case GGML_OP_(\w+):\n(?:\+ +case \w+:\n)*\+ +ggml_cuda_", patch.read_text(), re.M
    )
    untested = set(dispatched) - tested - by_gradient
    assert untested == set(), "add them to ops of scripts/gpu_check.sh"
    for command in patches_check.commands(patch):
        if command.mode:
            name, known = ("ops", tested) if command.mode == "test" else ("grads", grads)
            assert set(command.ops) - known == set(), f"add them to {name} of scripts/gpu_check.sh"


def test_the_gradients_of_all_ops_are_in_one_of_the_stages() -> None:
    """Those that take long last: what follows them in ggml's table would not be reached."""
    script = SCRIPT.read_text()
    lines = re.findall(
        r"^((?:ops|products|attention|backward|grads|long)=\S+|without\(\).*)$", script, re.M
    )
    command = [*lines, 'echo "$long $(without "$grads" "$products,$long")"']
    done = subprocess.run(
        ["bash", "-c", "\n".join(command)], capture_output=True, text=True, check=True
    )
    long, quick = (set(ops.split(",")) for ops in done.stdout.split())
    assert {"ROPE", "SOFT_MAX", "RMS_NORM", "IM2COL_3D"} == long
    assert quick == listed("grads") - listed("products") - long
    assert {"FLASH_ATTN_EXT", "MUL_MAT_ID", "OUT_PROD", "NORM"} < quick


def test_patches_of_cuda_are_found() -> None:
    """A change of the patches' form must not leave the test above without work."""
    assert len(cuda_patches()) > 8
    text = "".join(path.read_text() for path in cuda_patches())
    assert len(set(re.findall(r"^\+ +case GGML_OP_(\w+):\n\+ +ggml_cuda_", text, re.M))) > 15


@pytest.fixture
def results(tmp_path: Path) -> Any:
    return report.Results(tmp_path / "state", tmp_path / "out")


def stages_of(out: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((out / "results.json").read_text())["stages"]
    assert len({line["stage"] for line in found}) == len(found)
    return {line["stage"]: line for line in found}


def test_calls_are_merged(results: Any) -> None:
    call(results, "open")
    for stage, log in (("ops", PASSED), ("train-torch-bf16", json.dumps(training("torch", [1.0])))):
        call(results, "begin", stage, "60", *(["ACC,ROPE"] if stage == "ops" else []))
        assert stages_of(results.out)[stage]["outcome"] == "running"
        (results.state / f"{stage}.log").write_text(log)
        if stage == "ops":
            call(results, "end", stage, "0", "7")
    # the machine ended the call: the next one says so, and does another stage
    call(results, "open")
    ours = training("pyggml", [1.0, 0.5], tokens_per_s=150.0)
    call(results, "begin", "train-pyggml-bf16", "60")
    (results.state / "train-pyggml-bf16.log").write_text(json.dumps(ours))
    call(results, "end", "train-pyggml-bf16", "0", "9")
    outcomes = {name: line["outcome"] for name, line in stages_of(results.out).items()}
    assert outcomes == {
        "ops": "passed",
        "train-torch-bf16": "cut short",
        "train-pyggml-bf16": "passed",
    }
    found = json.loads((results.out / "results.json").read_text())
    assert found["cases"]["ops"]["counts"] == {"ACC": {"OK": 1}, "ROPE": {"OK": 1}}
    assert found["comparison"][0]["speed"] == 1.5
    # again, with another end: one line, the new one
    call(results, "begin", "ops", "60", "ACC,ROPE")
    (results.state / "ops.log").write_text("  ACC(ne=[2,3]): OK\n")
    call(results, "end", "ops", "0", "5")
    assert stages_of(results.out)["ops"]["why"] == "no case passed of ROPE"
    assert sorted(path.name for path in results.out.iterdir()) == ["logs.tar.gz", "results.json"]


def test_results_of_an_earlier_build_are_marked(results: Any) -> None:
    for stage in ("ops", "build", "grad"):
        call(results, "begin", stage, "60")
        call(results, "end", stage, "0", "1")
    found = stages_of(results.out)
    assert [name for name, line in found.items() if line.get("is_older_than_build")] == ["ops"]


def test_trainings_of_an_earlier_build_are_marked(results: Any) -> None:
    for stage in ("train-pyggml-bf16", "train-torch-bf16", "build"):
        call(results, "begin", stage, "60")
        told = json.dumps(training(stage.split("-")[1], [2.0, 1.0])) if stage != "build" else ""
        (results.state / f"{stage}.log").write_text(told)
        call(results, "end", stage, "0", "1")
    found = json.loads((results.out / "results.json").read_text())
    assert found["training"]["train-pyggml-bf16"]["is_older_than_build"]
    assert found["comparison"][0]["is_older_than_build"]


def test_what_an_earlier_call_found_outlives_a_call_without_time(results: Any) -> None:
    for stage in ("ops", "build"):
        call(results, "begin", stage, "60", *(["ACC,ROPE"] if stage == "ops" else []))
        (results.state / f"{stage}.log").write_text(PASSED)
        call(results, "end", stage, "0", "7")
    before = stages_of(results.out)["ops"]
    call(results, "skip", "ops", "no time was left of LIMIT=9")
    line = stages_of(results.out)["ops"]
    assert line == before | {"not_started_again": "no time was left of LIMIT=9"}
    assert line["is_older_than_build"]  # in its old place
    found = json.loads((results.out / "results.json").read_text())
    assert found["cases"]["ops"]["counts"] == {"ACC": {"OK": 1}, "ROPE": {"OK": 1}}
    # but this call has not run it
    show = [str(results.state), str(results.out), "show"]
    assert report.main([*show, "ops"]) == 3
    call(results, "begin", "ops", "60", "ACC,ROPE")
    assert "not_started_again" not in stages_of(results.out)["ops"]


def test_a_call_that_is_killed_leaves_no_log_of_the_one_before(results: Any) -> None:
    call(results, "begin", "sanitize-memcheck", "60", "ACC,ROPE")
    names = ("sanitize-memcheck.log", "sanitize-memcheck.txt", "sanitize-memcheck.ACC.txt")
    other = results.state / "sanitize-memcheck-grad.log"
    for path in (*(results.state / name for name in names), other):
        path.write_text(PASSED)
    call(results, "end", "sanitize-memcheck", "0", "7")
    call(results, "begin", "sanitize-memcheck", "60", "ACC,ROPE")
    call(results, "open")  # the next call, after that one was killed
    assert stages_of(results.out)["sanitize-memcheck"]["outcome"] == "cut short"
    found = json.loads((results.out / "results.json").read_text())
    assert found["cases"]["sanitize-memcheck"]["counts"] == {}
    assert not any((results.state / name).exists() for name in names)
    assert other.exists()


def test_the_exit_status_is_that_of_the_stages_named(results: Any) -> None:
    for stage, status in (("environment", "0"), ("build", "1")):
        call(results, "begin", stage, "60")
        call(results, "end", stage, status, "1")
    call(results, "skip", "grad", "no time was left")
    show = [str(results.state), str(results.out), "show"]
    assert report.main([*show, "environment"]) == 0
    assert report.main([*show, "environment", "grad"]) == 3
    assert report.main([*show, "build", "grad"]) == 1


def test_the_archive_is_small(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(400_000).hex()
    (tmp_path / "ops.log").write_text(noise + "the end")
    (tmp_path / "trace.json").write_text(noise)
    (tmp_path / "stages.jsonl").write_text("{}\n")
    packed = report.archive(tmp_path, 100_000)
    assert len(packed) <= 100_000
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == ["ops.log", "stages.jsonl"]
        log = tar.extractfile("ops.log")
        assert log is not None
        assert log.read().endswith(b"the end")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts alone, and in the place of the cases' program one that says what it was asked."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    for name in ("gpu_check.sh", "gpu_judge.py", "gpu_report.py"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    program = root / "build/gpu/cmake/bin/test-backend-ops"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"  # the trap before a word that a test may wait for
        '[ -z "$ENDS" ] || trap "sleep 1; touch $ENDS; exit 1" TERM\n'
        'echo "Testing $*"\n'
        "mode=$1\n"
        "while [ $# -gt 1 ]; do [ $1 = -o ] && of=$2; shift; done\n"
        "for op in $(echo $of | tr , ' '); do\n"
        '  [ $op != "$DIES" ] || { echo "/x/a.cu:3: CUDA error"; echo more; kill -ABRT $$; }\n'
        '  echo "  $op(v=1): OK"\n'
        '  [ $mode != grad ] || echo "  $op(v=1): OK"\n'
        "done\n"
        '[ -z "$SLEEP" ] || sleep "$SLEEP"\n'
        'echo "1/1 backends passed"\n'
    )
    program.chmod(0o755)
    return root


def started(checkout: Path, *stages: str, **variables: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("OUT", "LIMIT", "LIMIT_EACH")}
    env |= {"REHEARSAL": "1", "PYTHON": sys.executable, **variables}
    command = ["bash", str(checkout / "scripts/gpu_check.sh"), "run", *stages]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(checkout: Path, *stages: str, **variables: str) -> subprocess.CompletedProcess[str]:
    with started(checkout, *stages, **variables) as call:
        out, err = call.communicate(timeout=900)
    return subprocess.CompletedProcess(call.args, call.returncode, out, err)


@pytest.mark.slow
def test_stages_of_several_calls(checkout: Path) -> None:
    run(checkout, "grad", LIMIT_EACH="100")
    run(checkout, "sanitize-racecheck-grad", LIMIT_EACH="100")
    done = run(checkout, "attention", "sanitize-racecheck", LIMIT_EACH="100")
    found = stages_of(checkout / "build/gpu/out")
    outcomes = {name: found[name]["outcome"] for name in found if name != "environment"}
    assert outcomes == {
        "grad": "passed",
        "products-grad": "passed",
        "long-grad": "passed",
        "sanitize-racecheck-grad": "passed",
        "attention": "passed",
        "sanitize-racecheck": "passed",
    }, done.stdout
    state = checkout / "build/gpu/state"
    for stage, asked in (
        ("grad", "grad -b CPU -o NORM"),
        ("products-grad", "grad -b CPU -p gradient= -o MUL_MAT"),
        ("long-grad", "grad -b CPU -o POOL_1D"),
    ):
        assert f"Testing {asked}\n" in (state / f"{stage}.log").read_text()
    # a graph for each element is too many for a sanitizer
    assert "Testing grad -b CPU -p ^" in (state / "sanitize-racecheck-grad.log").read_text()
    asked = "Testing test -b CPU -p prec_src -o FLASH_ATTN_EXT\n"
    assert asked in (state / "attention.log").read_text()
    assert "ERROR SUMMARY: 0 errors" in (state / "sanitize-racecheck.txt").read_text()


@pytest.mark.slow
def test_a_stage_that_runs_into_its_limit(checkout: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere"
    run(checkout, "sanitize-memcheck", LIMIT_EACH="8", SLEEP="90", OUT=str(out))
    line = stages_of(out)["sanitize-memcheck"]
    assert line["outcome"] == "cut short"
    assert line["why"].startswith("3 cases within 8 s")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["ops", "sanitize-memcheck"])
def test_a_stage_is_over_when_its_program_has_ended(
    checkout: Path, tmp_path: Path, stage: str
) -> None:
    """It may take its time; the next one is not to share the device with it."""
    ends = tmp_path / "ends"
    found = run(checkout, stage, LIMIT_EACH="8", SLEEP="90", ENDS=str(ends))
    assert ends.exists(), found.stdout
    assert stages_of(checkout / "build/gpu/out")[stage]["outcome"] == "cut short"


@pytest.mark.slow
def test_a_call_that_is_ended_ends_its_stage_and_tells_of_it(
    checkout: Path, tmp_path: Path
) -> None:
    ends, log = tmp_path / "ends", checkout / "build/gpu/state/grad.log"
    with started(checkout, "grad", SLEEP="900", ENDS=str(ends)) as call:
        until = time.monotonic() + 300
        while not (log.exists() and "NORM" in log.read_text()):
            assert time.monotonic() < until
            time.sleep(0.1)
        call.terminate()
        call.communicate(timeout=300)
    assert call.returncode == 143
    line = stages_of(checkout / "build/gpu/out")["grad"]
    assert (line["outcome"], line["why"]) == ("cut short", "the call ended while it ran")
    with tarfile.open(checkout / "build/gpu/out/logs.tar.gz") as tar:
        assert "grad.log" in tar.getnames()
    until = time.monotonic() + 300
    while not ends.exists():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
def test_a_call_without_time_starts_nothing(checkout: Path) -> None:
    """And names every stage that there is."""
    done = run(checkout, LIMIT="1")
    assert done.returncode == 3, done.stdout + done.stderr
    found = stages_of(checkout / "build/gpu/out")
    assert {line["outcome"] for line in found.values()} == {"not started"}
    assert {"build", "ops", "grad", "sanitize-synccheck", "train-torch-bf16-compiled"} <= set(found)
    parts = sorted(set(found) - {"environment"})
    assert run(checkout, *parts, LIMIT="1").returncode == 3  # each can be called by its name


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["ops", "sanitize-memcheck"])
def test_an_op_that_ends_a_program_does_not_end_the_others(checkout: Path, stage: str) -> None:
    """Of NORM_BACK, SUM_SQR and ACC, the second."""
    done = run(checkout, "products" if stage == "ops" else stage, LIMIT_EACH="100")
    assert "died" not in done.stdout
    run(checkout, stage, LIMIT_EACH="100", DIES="SUM_SQR")
    state = checkout / "build/gpu/state"
    line = stages_of(checkout / "build/gpu/out")[stage]
    assert line["outcome"] == "failed"
    told = "status 134: /x/a.cu:3: CUDA error"
    assert line["why"] == f"{told}; SUM_SQR by itself: {told}; no case passed of SUM_SQR"
    found = json.loads((checkout / "build/gpu/out/results.json").read_text())
    assert found["cases"][stage]["counts"] == {"ACC": {"OK": 1}, "NORM_BACK": {"OK": 1}}
    told_of = sorted(path.name for path in state.glob(f"{stage}.*txt"))
    ops = ("", "ACC.", "NORM_BACK.", "SUM_SQR.")
    assert told_of == ([] if stage == "ops" else sorted(f"{stage}.{op}txt" for op in ops))


@pytest.mark.slow
def test_nothing_runs_after_a_build_that_failed(checkout: Path) -> None:
    """The program of an earlier one is there."""
    run(checkout, "grad", LIMIT_EACH="100")
    done = run(checkout, "build", "grad", "ops", "train-pyggml-f32", LIMIT_EACH="100")
    assert done.returncode == 1
    found = stages_of(checkout / "build/gpu/out")
    assert found["build"]["outcome"] == "failed"
    assert found["grad"]["outcome"] == "passed"
    assert found["grad"]["is_older_than_build"]
    assert found["grad"]["not_started_again"] == "the build failed"
    for stage in ("products", "train-pyggml-f32"):
        assert found[stage]["outcome"] == "not started"
        assert found[stage]["why"] == "the build failed"
    run(checkout, "attention", LIMIT_EACH="100")  # nor in a later call
    assert stages_of(checkout / "build/gpu/out")["attention"]["why"] == "the build failed"


@pytest.mark.parametrize(("sees", "passes"), [("True", True), ("False", False)])
def test_pytorch_without_a_gpu_fails_the_environment(
    checkout: Path, tmp_path: Path, sees: str, passes: bool
) -> None:
    """Without a rehearsal; all else that the stage asks for is there. The next one has no build."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("nvidia-smi", "nvcc", "compute-sanitizer", "cmake", "ninja", "c++"):
        (tools / name).write_text("#!/bin/sh\necho 9.0\n")
        (tools / name).chmod(0o755)
    (tmp_path / "torch.py").write_text(
        "class version: cuda = None\nclass cuda: is_available = lambda: SEES\n"
        "__version__ = '2'\n".replace("SEES", sees)
    )
    done = run(
        checkout, "train-weights", REHEARSAL="", LIMIT_EACH="100", PYTHONPATH=str(tmp_path),
        PATH=f"{tools}:{os.environ['PATH']}",
        TARGET_PYTHON=".".join(map(str, sys.version_info[:2])),
    )  # fmt: skip
    line = stages_of(checkout / "build/gpu/out")["environment"]
    log = (checkout / "build/gpu/state/environment.log").read_text()
    assert (line["outcome"] == "passed") == passes, done.stdout + log
    assert ("PyTorch sees no GPU" in log) != passes


def fake(folder: Path, **programs: str) -> None:
    folder.mkdir()
    for name, body in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.mark.parametrize("has_driver", [True, False])
def test_what_cmake_is_told_of_a_machine(checkout: Path, tmp_path: Path, has_driver: bool) -> None:
    """cuBLAS in PyTorch's packages alone, and the driver's library without one to link with."""
    package, tools = tmp_path / "site/nvidia/cu13", tmp_path / "tools"
    for path in ("include/cublas_v2.h", "lib/libcublas.so.13", "lib/libcublasLt.so.13"):
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).touch()
    known = "libcuda.so.1 (libc6,x86-64) => /x/libcuda.so.1" if has_driver else "libm.so => /m"
    fake(tools, nvidia_smi="echo 9.0", nvcc=f"echo '#$ TOP={tmp_path}'", ldconfig=f"echo '{known}'")
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": sys.executable}
    env["PYTHONPATH"] = str(tmp_path / "site")
    command = ["bash", str(checkout / "scripts/gpu_check.sh"), "part", "cuda_options"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert {
        "GGML_CUDA=ON",
        "CMAKE_CUDA_ARCHITECTURES=90",
        "CMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined",
        f"CMAKE_CUDA_FLAGS=-I{checkout}/build/gpu/cublas",
        f"CUDA_cublas_LIBRARY={package}/lib/libcublas.so.13",
        f"CUDA_cublasLt_LIBRARY={package}/lib/libcublasLt.so.13",
        "CUDA_cuda_driver_LIBRARY=/x/libcuda.so.1" if has_driver else "GGML_CUDA_NO_VMM=ON",
    } < set(done.stdout.splitlines())
    fake(tmp_path / "broken", nvidia_smi="echo NVIDIA-SMI has failed; exit 9")
    env["PATH"] = f"{tmp_path / 'broken'}:{env['PATH']}"
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nvidia-smi tells no compute capability" in done.stderr


@pytest.mark.slow
def test_a_tree_of_other_patches_is_not_built(checkout: Path) -> None:
    """What vendor.py would fetch is not to be had."""
    for path in (*(ROOT / "scripts").glob("vendor*.py"), ROOT / "vendor/ggml.toml"):
        copy = checkout / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    (checkout / "patches").mkdir()
    (checkout / "build/gpu/ggml").mkdir()
    (checkout / "build/gpu/ggml/.vendor-stamp.json").write_text('{"patches": {}}')
    run(checkout, "build", LIMIT_EACH="100", PYGGML_GGML_SDIST=str(checkout / "none"))
    line = stages_of(checkout / "build/gpu/out")["build"]
    assert line["outcome"] == "failed"
    assert line["why"].endswith("is of other patches than this checkout: pack again")
    assert not (checkout / "build/gpu/venv").exists()


@pytest.mark.parametrize("name", ["LIMIT", "LIMIT_EACH"])
def test_a_limit_that_is_no_number_is_refused(checkout: Path, name: str) -> None:
    done = run(checkout, "ops", **{name: "10m"})
    assert done.returncode == 2
    assert f"{name} must be whole seconds; got 10m" in done.stderr
    assert not (checkout / "build/gpu/out").exists()


def test_a_compute_capability_that_is_no_number_is_refused(checkout: Path) -> None:
    command = ["bash", str(checkout / "scripts/gpu_check.sh"), "compile", "sm_90"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "compute capability such as 90; got sm_90" in done.stderr
    assert not (checkout / "build/gpu/compiled").exists()


def limits() -> dict[str, int]:
    """The limit of each stage, by the patterns of the script's `one`, the build's too."""
    text = SCRIPT.read_text()
    found = {"build": int(re.findall(r"build_limit=(\d+)", text)[0])}
    for names, limit in re.findall(
        r'^        ([\w*-]+)\)(?:\n.*\n)? *stage "\$each" (\d+)', text, re.M
    ):
        found[names] = int(limit)
    return found


def test_the_limits_are_those_of_the_docs() -> None:
    each = limits()
    ops = [each["ops"], each["products"], each["attention"]]
    grads = [each["grad"], each["products-grad"], each["long-grad"]]
    tool = sum(limit for name, limit in each.items() if name.startswith("sanitize-"))
    by_name = ("train-pyggml-tf32", "train-torch-tf32")  # not of `train`
    assert {each[name] for name in by_name} == {90}
    trainings = [
        limit for name, limit in each.items() if name.startswith("train-") and name not in by_name
    ]
    rows = {
        "build": f"{each['build']} s",
        "train": f"{sum(trainings)} s in {len(trainings)} parts",
        "ops": " + ".join(map(str, ops)) + " s",
        "grad": " + ".join(map(str, grads)) + " s",
        "programs": f"{each['programs']} s",
        "sanitize": f"3 × {tool} s",
    }
    docs = (ROOT / "docs" / "internals" / "gpu.md").read_text()
    table = docs[docs.index("| stage | at most |") :].split("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.M)) == rows
    whole = each["build"] + sum(trainings) + sum(ops) + sum(grads) + each["programs"] + 3 * tool
    assert f"add up to {whole:,} s" in docs


@pytest.mark.slow
def test_what_is_not_built_is_told(checkout: Path) -> None:
    shutil.rmtree(checkout / "build/gpu/cmake")
    run(checkout, "grad", "train-weights", LIMIT_EACH="100")
    for line in stages_of(checkout / "build/gpu/out").values():
        if line["stage"] != "environment":
            assert "run the stage build first" in line["why"]


def test_an_unknown_stage_is_refused(checkout: Path) -> None:
    done = run(checkout, "ops", "speed")
    assert done.returncode == 2
    assert "got speed" in done.stderr
    assert not (checkout / "build/gpu/out").exists()
