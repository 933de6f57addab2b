# SPDX-License-Identifier: MIT
"""The CUDA kernels of the series, run on the CPU against ggml's CPU ops.

`python -m tests.emulation.build NAME` runs an op or a case by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .build import KERNELS, REPOSITORY, Builder, compiler, default_tree, ops_of_table
from .cuda.mistakes import MISTAKES
from .cuda.translate import translate

TREE = default_tree()
CUDA = TREE / "src" / "ggml-cuda"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="fibers and faults as Linux has them"),
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler is here"),
    pytest.mark.skipif(not (CUDA / "fattn-back.cu").exists(), reason="no patched ggml is here"),
]


@pytest.fixture(scope="module")
def builder() -> Builder:
    cache = os.environ.get("PYGGML_EMULATION_CACHE", REPOSITORY / "build" / "emulation")
    return Builder(TREE, Path(cache))


@pytest.fixture(scope="module")
def harness(builder: Builder) -> Path:
    return builder.harness()


def run(program: Path, *names: str) -> list[str]:
    done = subprocess.run(
        [program, *names], capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]


@pytest.mark.parametrize("op", ops_of_table())
def test_kernel_agrees_with_the_cpu(harness: Path, op: str) -> None:
    lines = run(harness, op)
    assert lines, f"{op}: no case ran"
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_harness_sees_mistakes(builder: Builder, tmp_path: Path, mistake: str) -> None:
    m = MISTAKES[mistake]
    kernel = m.kernel or m.source
    text = (CUDA / f"{kernel}.cu").read_text()
    if m.kernel:  # the header's text goes where it is included
        header = (CUDA / f"{m.source}.cuh").read_text().replace("#pragma once", "")
        text = text.replace(f'#include "{m.source}.cuh"', header)
    assert m.right in text, f"{m.source} has changed: this test must follow"
    program = builder.changed(kernel, text.replace(m.right, m.wrong), mistake, tmp_path)
    failed = [line for line in run(program, m.case) if line.startswith("FAIL")]
    assert any(re.search(m.said, line) for line in failed), failed or "all cases passed"


def test_graphs_are_captured_and_launched(builder: Builder) -> None:
    """Another input is seen; memory that the pool has given back is not used, and may be short."""
    lines = run(builder.graphs())
    assert len([line for line in lines if "virtual: " in line]) == 6
    assert len(lines) == 25
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if (graph->n_released != n_released) {", "if (false) {"),
        ("(void)cudaStreamEndCapture(cuda_ctx->stream(), &unfinished);", ""),
        ("    graph->warmup_complete = false;\n#else", "#else"),
    ],
    ids=["memory that is gone", "a capture that goes on", "a failed graph is launched"],
)
def test_mistakes_of_graphs_are_seen(
    builder: Builder, tmp_path: Path, right: str, wrong: str
) -> None:
    text = (CUDA / "ggml-cuda.cu").read_text()
    assert text.count(right) == 1, "ggml-cuda.cu has changed: this test must follow"
    program = builder.graphs(text.replace(right, wrong), tmp_path / "changed")
    assert [line for line in run(program) if line.startswith("FAIL")]


def test_every_kernel_of_the_series_is_built() -> None:
    """What the patches touch is compiled for the CPU, too."""
    touched: set[str] = set()
    for patch in sorted((REPOSITORY / "patches").glob("*.patch")):
        found = re.findall(r"^\+\+\+ b/src/ggml-cuda/([\w-]+)\.cu$", patch.read_text(), re.M)
        touched.update(found)
    # what is left of the first is ggml's own and takes half a minute; one line of the second
    assert touched - set(KERNELS) - {"solve_tri"} == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "k<T, 2><<<g, b, 0, s>>>(x, (y));",
            '::emu::launch("k<T, 2>", ::emu::launch_config(g, b, 0, s),'
            " [=](auto... emu_args) { k<T, 2>(emu_args...); }, x, (y));",
        ),
        ("extern __shared__ float2 s[];", "float2 * s = (float2 *) ::emu::dynamic_shared();"),
        (
            'asm volatile("cp {%0, %1}, [%2];"\n : "=r"(x[0]), "+r"(f(y)) : "l"(p));',
            '::emu::ptx("cp {%0, %1}, [%2];", { ::emu::ptx_out(x[0]), ::emu::ptx_out(f(y)) },'
            " { ::emu::ptx_in(p) }\n);",
        ),
        ('asm("a;" "b;");', '::emu::ptx("a;" "b;", {  }, {  });'),
        ('asm("v_dot %0" : "+v"(acc) : [x] "v"(v));', 'asm("v_dot %0" : "+v"(acc) : [x] "v"(v));'),
        ("a << b; c >> d;", "a << b; c >> d;"),
    ],
)
def test_translation(text: str, expected: str) -> None:
    assert translate(text, "x.cu") == expected


def test_translation_keeps_lines() -> None:
    text = "k<<<g, b>>>(\n    x,\n    y);\n__shared__ float a[2][3];\n"
    out = translate(text, "x.cu")
    assert out.count("\n") == text.count("\n")
    assert "float (&" not in out
    assert "typedef float emu_shared_a [2][3]" in out


@pytest.mark.slow
def test_slow_cases(harness: Path) -> None:
    """Such as more rows than a grid has blocks along y; an op's name runs the others."""

    def listed(*more: str) -> list[str]:
        command = [harness, "--list", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    slow = sorted(set(listed("--all")) - set(listed()))
    assert slow
    assert not [line for line in run(harness, *slow) if not line.startswith("ok ")]


@pytest.mark.slow
def test_models_train_on_the_emulated_device(builder: Builder) -> None:
    """Whole steps through ggml's scheduler: the CPU's losses; nothing is left to the CPU.

    Nor of LoRA on a quantised model, whose graphs are captured as the others'.

    In bf16 the first loss is off by what a logit near 1 is rounded by, 2^-9, at most. AdamW's first
    step is as large for a gradient that is all rounding; then the losses agree within 1e-3.
    """
    command = [sys.executable, "-m", "tests.emulation.train_cuda", builder.backend()]
    env = {**os.environ, "PYGGML_EMULATED_CC": "80"}  # with tensor cores
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    adapters = told["models"].pop("adapters on q4_K")
    for model, found in told["models"].items():
        assert found["cuda:0"] == pytest.approx(found["cpu"], rel=1e-5), model
        assert found["bf16"] != found["cuda:0"], model
        assert found["bf16"][0] == pytest.approx(found["cpu"][0], abs=2**-9), model
        assert found["bf16"] == pytest.approx(found["cpu"], rel=1e-3), model
        assert found["fallbacks"] == []
    # Adapters on a frozen q4_K model, beside one of f32 with the same numbers: what is emulated, as
    # no kernel of eight bits is built, rounds weights and activations to f16, 2^-11; the CPU makes
    # eight bits of the activations, 0.7 % of a product (tests/nn/test_lora.py).
    exact = told["exact"]
    assert adapters["fallbacks"] == []
    assert adapters["cuda:0"] == pytest.approx(exact, rel=2**-11)
    assert adapters["cpu"] == pytest.approx(exact, rel=0.007)
    assert adapters["bf16"] != adapters["cuda:0"]
    assert adapters["bf16"][0] == pytest.approx(exact[0], abs=2**-9)
    assert adapters["bf16"] == pytest.approx(exact, rel=2**-9)
    assert told["left"]["ops"] == {"DIAG_MASK_ZERO": 1}
    for run in told["left"]["runs"]["cuda:0"]:
        np.testing.assert_allclose(run, told["left"]["runs"]["cpu"][0], rtol=1e-6, atol=1e-7)
    assert told["moved adapters"]["devices"] == ["cuda:0"]
    assert told["moved adapters"]["same"]
    assert told["moved adapters"]["losses"] == pytest.approx(adapters["cuda:0"], rel=1e-5)
    assert told["copied"]
    assert told["moved"]["devices"] == ["cuda:0"]
    assert told["moved"]["same"]
    assert told["moved"]["losses"] == pytest.approx(told["models"]["gpt2 plain"]["cpu"], rel=1e-5)
    assert 0 < told["graphs"]["captured"] <= told["graphs"]["launched"] / 2
    assert len(told["short"]["errors"]) == 2
    for error in told["short"]["errors"]:
        assert "cuda:0 failed to compute: GGML status: error (failed to allocate memory)" in error
    assert told["short"]["losses"] == told["short"]["expected"]
    assert told["steps"] == {model: {} for model in told["steps"]}
    assert told["flash"] == {"8": True, "64": True, "256": True, "288": False}
