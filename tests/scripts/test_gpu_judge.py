# SPDX-License-Identifier: MIT
"""The check for a machine with a GPU: what it makes of the logs of its stages."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from .gpu_logs import PASSED, call, judging, report, train, training

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("bash") is None, reason="bash and timeout as of Linux"
)

LOG = """\
Testing 2 devices

Backend 1/2: CUDA0
  Device description: a GPU

  NORM_BACK(type=f32,ne=[64,5,4,3],v=0): \x1b[1;32mOK\x1b[0m
  NORM_BACK(type=f32,ne=[65,5,4,3],v=1): ggml_cuda: a line of another kind
\x1b[1;32mOK\x1b[0m
[SUM_SQR] ERR = 0.5 > 0.0000001   SUM_SQR(type=f32,ne=[64,5,4,3]): \x1b[1;31mFAIL\x1b[0m
  OUT_PROD(type_a=q4_0,type_b=f32): not supported [CUDA0] \n\
  ACC(type=f32): skipping large tensors for speed \n"""


def test_cases_are_counted() -> None:
    cases = judging.Cases(LOG + "  1/3 tests passed\n\nFailing tests:\n  SUM_SQR(type=f32)\n")
    assert {op: dict(c) for op, c in cases.counts.items()} == {
        "NORM_BACK": {"OK": 2},
        "SUM_SQR": {"FAIL": 1},
        "OUT_PROD": {"not supported": 1},
        "ACC": {"skipped": 1},
    }
    assert cases.failed == ["SUM_SQR(type=f32,ne=[64,5,4,3])"]
    assert cases.done == 3
    assert cases.missing(["NORM_BACK", "OUT_PROD", "ROPE"]) == ["OUT_PROD", "ROPE"]


GRADIENTS = """\
  ROPE(ne=[4]): OK
  ROPE(ne=[4]): OK
  ROPE(ne=[4]): OK
  ROPE(ne=[4]): OK
  NORM(permuted,twice): OK
  NORM(permuted,twice): [NORM] MAA = 1.0 > 0.1 FAIL
  NORM(permuted,twice): compare failed FAIL
  ACC(ne=[2]): OK
  ACC(ne=[2]): not supported [CUDA0]
  GELU(ne=[3]): OK
"""


def test_a_gradient_that_has_begun_is_none_that_passed() -> None:
    """The program writes OK as it begins one; the same case may be there twice."""
    cases = judging.Cases(GRADIENTS, grad=True)
    assert {op: dict(c) for op, c in cases.counts.items()} == {
        "ROPE": {"OK": 2},
        "NORM": {"FAIL": 1},
        "ACC": {"not supported": 1},
    }
    assert cases.failed == ["NORM(permuted,twice)"]
    assert (cases.begun, cases.done) == ("GELU(ne=[3])", 3)
    refused = "  ACC(ne=[2]): OK\n  ACC(ne=[2]): not supported [CUDA0]\n"
    assert judged("grad", 0, refused, ["ACC"]) == ("failed", "no case passed of ACC")


ABORT = """\
CUDA error: an illegal memory access was encountered
  current device: 0, in function launch at /x/ggml-cuda.cu:119
  cudaGetLastError()
/x/ggml-cuda.cu:128: CUDA error
[New LWP 17]
#7  0x00007f in main () from /x/libc.so.6
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            ABORT,
            "CUDA error: an illegal memory access was encountered"
            " (current device: 0, in function launch at /x/ggml-cuda.cu:119)",
        ),
        (
            "/x/ggml.c:42: GGML_ASSERT(a == b) failed\n[New LWP 1]\n",
            "/x/ggml.c:42: GGML_ASSERT(a == b) failed",
        ),
        ("/x/rope.cu:7: not implemented\nbacktrace\n", "/x/rope.cu:7: not implemented"),
        ("bash: line 3: 17 Segmentation fault\n", "bash: line 3: 17 Segmentation fault"),
        ("", "ACC(ne=[2,3]): OK"),
    ],
)
def test_the_reason_of_a_death_is_searched_for(said: str, why: str) -> None:
    log = f"  ACC(ne=[2,3]): OK\n{said}\n== died with status 134\n"
    assert judged("ops", 134, log, ["ACC"]) == ("failed", f"status 134: {why}")


def test_a_death_within_a_gradient_tells_its_case() -> None:
    log = GRADIENTS + ABORT + "\n== died with status 134\n"
    assert "; status 134 in GELU(ne=[3]): CUDA error: an illegal" in judged(
        "grad", 134, log, ["ROPE"]
    )[1]  # fmt: skip


def judged(
    stage: str, status: int, log: str, ops: list[str] | None = None, sanitizer: str = "",
    seconds: int = 3,
) -> tuple[str, str]:  # fmt: skip
    line: dict[str, Any] = {"stage": stage, "status": status, "seconds": seconds, "limit": 60}
    if ops:
        line["ops"] = ops
    return judging.judge(line, log, [sanitizer] if sanitizer else [])


def test_an_op_without_a_case_fails_by_name() -> None:
    assert judged("ops", 0, PASSED, ["ACC", "ROPE"]) == ("passed", "")
    assert judged("ops", 0, PASSED, ["ACC", "CUMSUM_BACK", "ROPE"]) == (
        "failed",
        "no case passed of CUMSUM_BACK",
    )
    skipped = "Backend 1/1: CPU\n  Skipping\n1/1 backends passed\nOK\n"
    assert judged("ops", 0, skipped, ["ACC"]) == ("failed", "no case passed of ACC")


def test_a_failed_case_fails() -> None:
    outcome, why = judged("grad", 1, "  ROPE(ne=[4]): [ROPE] MAA = 1.0 > 0.1 FAIL\n", ["ROPE"])
    assert outcome == "failed"
    assert "1 cases failed: ROPE(ne=[4])" in why


@pytest.mark.parametrize("status", judging.TIMED_OUT)
def test_a_sanitizer_without_time_is_no_error(status: int) -> None:
    ops = ["ACC", "ROPE", "DROPOUT"]
    quiet = "========= COMPUTE-SANITIZER\n"
    late = judged("sanitize-memcheck", status, PASSED, ops, quiet, seconds=60)
    assert late == ("cut short", "2 cases within 60 s; none of DROPOUT")
    told = quiet + "========= Invalid __global__ read of size 4 bytes\n=========     at acc+0x10\n"
    outcome, why = judged("sanitize-memcheck", status, PASSED, ops, told, seconds=60)
    assert outcome == "failed"
    assert why.startswith("compute-sanitizer told 1 errors; 2 cases within 60 s")
    # ended by something else, such as a lack of memory
    assert judged("sanitize-memcheck", status, PASSED, ops, quiet)[0] == "failed"


SUMMARY = "========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (SUMMARY, ""),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", ""),
        ("========= Warning: a kernel is not instrumented\n" + SUMMARY, ""),
        ("========= Invalid\n========= ERROR SUMMARY: 7 errors\n", " told 7 errors"),
        ("========= ERROR SUMMARY: 1 error\n", " told 1 errors"),
        (
            "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n",
            " told 2 errors",
        ),
        (
            "========= Error: Race reported between Write access at a+0x10\n"
            "=========     and Read access at a+0x20 [8 hazards]\n"
            "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
            " told 1 errors",
        ),
        (
            "========= Internal Sanitizer Error: lost\n" + SUMMARY,
            ": Internal Sanitizer Error: lost",
        ),
        (
            "========= Error: No attachable process found\n" + SUMMARY,
            ": Error: No attachable process found",
        ),
        (
            "========= Error: process didn't terminate successfully\n" + SUMMARY,
            ": Error: process didn't terminate successfully",
        ),
        ("", ": no summary: nothing is known to have been checked"),
        (
            "========= LEAK SUMMARY: 0 bytes\n",
            ": no summary: nothing is known to have been checked",
        ),
    ],
)
def test_a_sanitizer_passes_by_its_summary(log: str, why: str) -> None:
    judgement = judged(
        "sanitize-memcheck", 0, PASSED, ["ACC", "ROPE"], "========= COMPUTE-SANITIZER\n" + log
    )
    assert judgement == (("failed", f"compute-sanitizer{why}") if why else ("passed", ""))


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        ("========= Warning: a kernel is not instrumented\n", "cut short"),
        (
            "========= Error: process didn't terminate successfully\n"
            "========= Target application returned an error\n" + SUMMARY,
            "cut short",
        ),
        (
            "========= Error: process didn't terminate successfully\n"
            "========= ERROR SUMMARY: 1 error\n",
            "cut short",
        ),
        ("========= Internal Sanitizer Error: lost\n", "failed"),
        ("========= Error: No attachable process found\n", "failed"),
        (
            "========= Invalid\n========= Error: process didn't terminate successfully\n"
            "========= Target application returned an error\n========= ERROR SUMMARY: 2 errors\n",
            "failed",
        ),
        (
            "========= Warning: Race reported between Write access at a+0x10\n"
            "=========     and Read access at a+0x20 [8 hazards]\n"
            "========= Target application returned an error\n"
            "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n",
            "failed",
        ),
        ("========= Error: Race reported between Write access at a+0x10\n", "failed"),
        (
            "========= Invalid\n========= Target application returned an error\n"
            "========= ERROR SUMMARY: 2 errors\n",
            "failed",
        ),
    ],
)
def test_the_end_of_the_time_is_no_error(log: str, outcome: str) -> None:
    judgement = judged("sanitize-memcheck", 124, PASSED, ["ACC", "ROPE"], log, seconds=60)
    assert judgement[0] == outcome, judgement


def test_every_program_of_a_sanitizer_needs_its_summary() -> None:
    line = {"stage": "sanitize-memcheck", "status": 0, "seconds": 3, "limit": 60, "ops": ["ACC"]}
    assert judging.judge(line, PASSED, [SUMMARY, SUMMARY]) == ("passed", "")
    assert judging.judge(line, PASSED, [SUMMARY, ""])[0] == "failed"
    assert judging.judge(line, PASSED, [])[0] == "failed"


def test_a_build_without_time_fails_and_tells_how_far_it_came() -> None:
    outcome, why = judged("build", 124, "  [1/99] Building\n  [41/99] Building\n", seconds=60)
    assert outcome == "failed"
    assert why == (
        "took longer than its limit of 60 s; 41/99 of the build was done and is kept: run it again"
    )
    assert judged("build", 1, "x\nerror: no cuBLAS\n") == ("failed", "status 1: error: no cuBLAS")


def test_a_training_must_do_its_steps() -> None:
    whole, half = training("torch", [2.0, 1.0]), training("torch", [2.0])
    assert judged("train-torch-bf16", 0, json.dumps(whole)) == ("passed", "")
    cut = json.dumps(half) + '\n{"framework": "tor'
    assert judged("train-torch-bf16", 124, cut, seconds=60) == (
        "cut short",
        "1 of 2 steps within 60 s",
    )
    assert (
        judged("train-torch-bf16", 1, "")[1] == "status 1 after 0 of its steps: it printed nothing"
    )
    assert judged("train-weights", 0, "") == ("passed", "")
    # what another library prints, last
    other = json.dumps(whole) + '\n{"event": "compiled"}\n'
    assert judged("train-torch-bf16", 0, other) == ("passed", "")
    assert judged("train-torch-bf16", 0, '{"event": "compiled"}\n')[0] == "failed"
    aborted = json.dumps(half) + "\n" + ABORT
    why = judged("train-pyggml-bf16", 134, aborted)[1]
    assert why.startswith("status 134 after 1 of 2 steps: CUDA error: an illegal memory access")


@pytest.fixture
def results(tmp_path: Path) -> Any:
    return report.Results(tmp_path / "state", tmp_path / "out")


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-Infinity", "1e999", "null"])
def test_a_training_must_have_losses(results: Any, loss: str) -> None:
    """And results.json is JSON, whatever a training printed."""
    log = json.dumps(training("pyggml", [2.0, 8765.0])).replace("8765.0", loss)
    assert judged("train-pyggml-bf16", 0, log) == (
        "failed",
        "1 losses are not finite, the first that of step 2",
    )
    assert judged("train-pyggml-bf16", 124, log, seconds=60)[0] == "failed"
    for stage, said in (
        ("train-pyggml-bf16", log),
        ("train-torch-bf16", json.dumps(training("torch", [2.0, 1.0]))),
    ):
        call(results, "begin", stage, "60")
        (results.state / f"{stage}.log").write_text(said)
        call(results, "end", stage, "0", "1")

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    text = (results.out / "results.json").read_text()
    found = json.loads(text, parse_constant=refuse)
    assert found["training"]["train-pyggml-bf16"]["losses"] == [2.0, None]
    assert found["comparison"][0]["losses_differ_by"] is None
    show = [str(results.state), str(results.out), "show", "train-pyggml-bf16"]
    assert report.main(show) == 1


def test_a_training_must_stay_on_the_device() -> None:
    log = json.dumps(training("pyggml", [2.0, 1.0], fallbacks={"ROPE": 2}))
    assert judged("train-pyggml-bf16", 0, log) == ("failed", "left to the CPU: ROPE x 2")
    log = json.dumps(training("pyggml", [2.0, 1.0], fallbacks={}))
    assert judged("train-pyggml-bf16", 0, log) == ("passed", "")


@pytest.mark.parametrize(
    ("losses", "why"),
    [
        ([2.0, 1.0], ""),
        ([3.0, 3.1, 2.0, 2.1, 1.0, 2.9], ""),
        ([2.0, 2.0], "the losses have not fallen: 2.0000 on average at first, 2.0000 at last"),
        (
            [1.0, 2.0, 0.5, 3.0],
            "the losses have not fallen: 1.0000 on average at first, 3.0000 at last",
        ),
    ],
)
def test_losses_must_fall(losses: list[float], why: str) -> None:
    """Of their first third and their last."""
    log = json.dumps(training("pyggml qlora", losses, wanted_steps=len(losses)))
    assert judged("train-pyggml-qlora", 0, log) == (("failed", why) if why else ("passed", ""))
    assert judged("train-pyggml-qlora", 124, log, seconds=60)[0] == "cut short"


def test_a_training_of_another_model_is_compared_with_none() -> None:
    found = {
        "a": training("torch", [2.0, 1.0], size="gpt2-124m"),
        "b": training("pyggml", [2.0, 1.0], size="gpt2-124m"),
        "c": training("pyggml", [2.0, 1.0], size="gpt2-355m"),
        "d": training("pyggml qlora", [2.0, 1.0], size="gpt2-124m", model="llama of q4_K"),
    }
    assert [line["ours"] for line in report.comparison(found)] == ["pyggml"]


def test_a_training_tells_losses_that_are_not_finite_as_null(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = argparse.Namespace(
        framework="pyggml", compile=False, attention="flash", size="tiny", precision="f32",
        batch=1, context=2, steps=2, warmup=1,
    )  # fmt: skip
    told = train.Run(args, None)
    told.add(2.0, 0.5)
    told.add(float("nan"), 0.5)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["losses"] for line in lines] == [[2.0], [2.0, None]]
    assert "NaN" not in lines[-1]
    assert judging.training_of("\n".join(lines)) == json.loads(lines[-1])  # the keys that it needs


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (
            "[3/9] x.cu\nFAILED: x.cu.o\nx.cu(7): error: no such name\n[4/9] y.cu\n"
            "ninja: build stopped\nerror: failed-wheel-build-for-install\n  pyggml\n",
            "x.cu(7): error: no such name",
        ),
        (
            "  CMake Error at CMakeLists.txt:25 (message):\n\n"
            "    vendor/ggml could not be made\n  x\n",
            "CMake Error at CMakeLists.txt:25 (message): vendor/ggml could not be made",
        ),
        (
            "/usr/bin/ld: libggml-cuda.so: undefined reference to `cuMemCreate'\n"
            "collect2: error: ld\n",
            "/usr/bin/ld: libggml-cuda.so: undefined reference to `cuMemCreate'",
        ),
        ("Traceback\n  x\nImportError: libcuda.so.1: no\nmore\n", "ImportError: libcuda.so.1: no"),
        ("-- Warning: ccache not found\nthis machine lacks it\n", "this machine lacks it"),
        ("", "it printed nothing"),
    ],
)
def test_the_first_error_of_a_build_is_told(log: str, why: str) -> None:
    """Its last line is that of pip, which says that something has failed."""
    assert judged("build", 1, log) == ("failed", f"status 1: {why}")


@pytest.mark.parametrize(("last", "is_apart"), [(1.5, True), (1.05, False)])
def test_losses_must_be_those_of_pytorch(results: Any, last: float, is_apart: bool) -> None:
    """Nearer than they were to where it had begun; how near is told."""
    for stage, losses in (("train-pyggml-bf16", [2.0, last]), ("train-torch-bf16", [1.5, 1.0])):
        call(results, "begin", stage, "60")
        told = training(stage.split("-")[1], [losses[0] if is_apart else 1.5, losses[1]])
        (results.state / f"{stage}.log").write_text(json.dumps(told))
        call(results, "end", stage, "0", "1")
    found = json.loads((results.out / "results.json").read_text())
    assert found["comparison"][0]["is_apart"] == is_apart
    show = [str(results.state), str(results.out), "show"]
    assert report.main([*show, "train-torch-bf16"]) == int(is_apart)
    assert report.main(show) == 0  # of another call
