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

from .build import (
    FAST,
    FAST_OPS,
    KERNELS,
    REPOSITORY,
    Builder,
    compiler,
    default_cache,
    default_tree,
    ops_of_table,
)
from .cuda.mistakes import MISTAKES
from .cuda.translate import translate

TREE = default_tree()
CUDA = TREE / "src" / "ggml-cuda"

# Attention with heads of 64, several tiles each way.
ATTENTION_64 = ("FLASH_ATTN_EXT/bf16-causal", "FLASH_ATTN_EXT_BACK/bf16-long")
WHOLE = ("MUL_MAT/whole-may-round-bf16", "MUL_MAT/whole-batches-may-round-bf16")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="fibers and faults as Linux has them"),
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler is here"),
    pytest.mark.skipif(not (CUDA / "fattn-back.cu").exists(), reason="no patched ggml is here"),
]


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder(TREE, default_cache())


@pytest.fixture(scope="module")
def harness(builder: Builder) -> Path:
    return builder.harness()


@pytest.fixture(scope="module")
def fast_harness(builder: Builder) -> Path:
    return builder.harness(FAST, "fast-harness")


def told(program: Path, *names: str, **env: str) -> list[str]:
    """The lines that the program prints; env: of the emulated device."""
    done = subprocess.run(
        [program, *names],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return done.stdout.splitlines()


def run(program: Path, *names: str, **env: str) -> list[str]:
    return [line for line in told(program, *names, **env) if line.startswith(("ok ", "FAIL "))]


@pytest.mark.parametrize("op", FAST_OPS)
def test_kernel_agrees_with_the_cpu(fast_harness: Path, op: str) -> None:
    lines = run(fast_harness, op)
    assert lines, f"{op}: no case ran"
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in ops_of_table() if op not in FAST_OPS])
def test_kernel_agrees_with_the_cpu_too(harness: Path, op: str) -> None:
    lines = run(harness, op)
    assert lines, f"{op}: no case ran"
    assert not [line for line in lines if line.startswith("FAIL")]


def text_of(kernel: str, header: str = "") -> str:
    """The text of a kernel file, with that of a header where it is included."""
    text = (CUDA / f"{kernel}.cu").read_text()
    if header:
        inner = (CUDA / f"{header}.cuh").read_text().replace("#pragma once", "")
        text = text.replace(f'#include "{header}.cuh"', inner)
    return text


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=[] if m.fast else pytest.mark.slow) for name, m in MISTAKES.items()],
)
def test_harness_sees_mistakes(builder: Builder, tmp_path: Path, mistake: str) -> None:
    m = MISTAKES[mistake]
    kernel = m.kernel or m.source
    text = text_of(kernel, m.source if m.kernel else "")
    assert m.right in text, f"{m.source} has changed: this test must follow"
    program = builder.changed(kernel, text.replace(m.right, m.wrong), mistake, tmp_path)
    failed = [line for line in run(program, m.case) if line.startswith("FAIL")]
    assert any(re.search(m.said, line) for line in failed), failed or "all cases passed"


# Sources or results that lie where the chain could not be computed, or are not made of vectors.
REFUSED = re.compile(
    r"(ADD|BACK)/\S*-37(-|$)|NORM/in-one-37-product"
    r"|sum-over-gradient|rounded-(rows|odd)|residual-(rows|twice)"
)


@pytest.mark.parametrize(
    ("op", "program"),
    [
        ("NORM_BACK", "fast_harness"),
        pytest.param("NORM", "harness", marks=pytest.mark.slow),
        pytest.param("ADD", "harness", marks=pytest.mark.slow),
        pytest.param("REPEAT_BACK", "harness", marks=pytest.mark.slow),
    ],
)
def test_chains_have_the_bits_of_their_ops(
    request: pytest.FixtureRequest, op: str, program: str
) -> None:
    """In fewer launches, but for those that cannot be computed as a chain."""
    chain = re.compile(
        rf"ok {op}/(\S*(?:in-one|rounded|gelu|-multiplied)\S*) .*launches=(\d+) (\S+)"
    )
    found: dict[str, list[tuple[int, str]]] = {}
    for env in ({}, {"GGML_CUDA_DISABLE_FUSION": "1"}):
        for line in run(request.getfixturevalue(program), "--all", op, **env):
            if match := chain.match(line):
                found.setdefault(match[1], []).append((int(match[2]), match[3]))
    assert len(found) > 10
    for name, ((fused, bits), (alone, expected)) in found.items():
        assert bits == expected, name
        assert fused == alone if REFUSED.search(f"{op}/{name}") else fused < alone, name


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["rdna3", "cdna"])
def test_products_that_may_round_are_f32_on_amd(harness: Path, gpu: str) -> None:
    """Whole numbers that bf16 has, and sums that it has not; also where rows have gaps."""
    cases = (*WHOLE, "MUL_MAT/padded-f16", "MUL_MAT/padded-bf16")
    lines = run(harness, *cases, PYGGML_EMULATED_AMD=gpu)
    assert len(lines) == len(cases)
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.slow
def test_products_that_are_rounded_on_amd_are_seen(builder: Builder, tmp_path: Path) -> None:
    text = (CUDA / "ggml-cuda.cu").read_text()
    right = "prefer_f32_output = may_round || "
    assert text.count(right) == 1, "ggml-cuda.cu has changed: this test must follow"
    text = text.replace(right, "prefer_f32_output = ")
    program = builder.changed("ggml-cuda", text, "bf16 results on AMD", tmp_path)
    assert all(line.startswith("ok ") for line in run(program, *WHOLE))
    for line in run(program, *WHOLE, PYGGML_EMULATED_AMD="rdna3"):
        assert line.startswith("FAIL ")


def shared_of(lines: list[str]) -> list[tuple[str, int, int]]:
    """Kernels, what they have written of their dynamic shared memory, and asked for."""
    found = (re.match(r"shared (\d+) of (\d+) bytes: (.*)", line) for line in lines)
    return [(match[3], int(match[1]), int(match[2])) for match in found if match]


def blocks_of(asked: int, kib: int) -> int:
    """How many blocks fit into a multiprocessor, which keeps 1 KiB of each for itself."""
    return (kib + 1) * 1024 // (asked + 1024)


def larger_than_used(lines: list[str]) -> list[str]:
    """Kernels that ask for more than they write, but for l and D of one pass and the padding."""
    return [kernel for kernel, written, asked in shared_of(lines) if asked - written > 1024 + 16]


@pytest.mark.slow
@pytest.mark.parametrize(("kib", "asked"), [(99, 46080), (163, 56320)])
def test_shared_memory_of_attention(harness: Path, kib: int, asked: int) -> None:
    """Two blocks fit with heads of up to 64: on 8.6, 8.9 and 12.0, and on 8.0 with longer tiles."""
    lines = told(harness, *ATTENTION_64, PYGGML_EMULATED_SHARED_KIB=str(kib))
    assert not [line for line in lines if line.startswith("FAIL")]
    assert larger_than_used(lines) == []
    taken = shared_of(lines)
    assert len(taken) == 4  # the forward, its sums, and two passes
    assert max(a for _, _, a in taken) == asked
    assert min(blocks_of(a, kib) for _, _, a in taken) >= 2


@pytest.mark.slow
def test_attention_with_much_shared_memory(harness: Path) -> None:
    """All cases on a GPU such as the A100, whose tiles are longer."""
    lines = told(harness, "FLASH_ATTN_EXT_BACK", PYGGML_EMULATED_SHARED_KIB="163")
    assert not [line for line in lines if line.startswith("FAIL")]
    assert larger_than_used(lines) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        ("fattn-f32", "only_l ? fattn_bf16_config<D>::nbytes_l : ", ""),
        (
            "fattn-back-mma",
            "if (!fattn_back_mma_two_fit(config::nbytes_back, smpbo)) {",
            "if (false) {",
        ),
    ],
    ids=["more than is used", "one block"],
)
def test_shared_memory_that_is_wasted_is_seen(
    builder: Builder, tmp_path: Path, kernel: str, right: str, wrong: str
) -> None:
    text = (CUDA / f"{kernel}.cu").read_text()
    assert text.count(right) == 1, f"{kernel}.cu has changed: this test must follow"
    text = text.replace(right, wrong)
    program = builder.changed(kernel, text, right, tmp_path)
    lines = told(program, "FLASH_ATTN_EXT_BACK/bf16-long")
    assert larger_than_used(lines) or min(blocks_of(a, 99) for _, _, a in shared_of(lines)) < 2


def test_graphs_are_captured_and_launched(builder: Builder) -> None:
    """Another input is seen; memory that the pool has given back is not used, and may be short."""
    lines = run(builder.graphs())
    assert len(lines) == 36
    assert not [line for line in lines if line.startswith("FAIL")]


def test_activations_are_rounded_with_a_nan(builder: Builder) -> None:
    """The scale of a block that has a NaN or an infinity is NaN, so that its products are."""
    lines = run(builder.rounding())
    assert len(lines) == 20
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if (graph->n_released != n_released) {", "if (false) {"),
        ("(void)cudaStreamEndCapture(cuda_ctx->stream(), &unfinished);", ""),
        ("    graph->warmup_complete = false;\n#else", "#else"),
        ("if (ggml_cuda_lock_counter.load(std::memory_order_relaxed) != 0) {", "if (false) {"),
        ("return false; // no scratch memory", "throw; //"),
    ],
    ids=[
        "memory that is gone",
        "a capture that goes on",
        "a failed graph is launched",
        "a device that is waited for in a capture",
        "an exception in a C function",
    ],
)
def test_mistakes_of_graphs_are_seen(
    builder: Builder, tmp_path: Path, right: str, wrong: str
) -> None:
    memory = (CUDA / "graph-memory.cuh").read_text().replace("#pragma once\n", "")
    text = (CUDA / "ggml-cuda.cu").read_text()
    text = text.replace('#include "ggml-cuda/graph-memory.cuh"\n', memory)
    assert text.count(right) == 1, "ggml-cuda.cu has changed: this test must follow"
    program = builder.graphs(text.replace(right, wrong), tmp_path / "changed")
    assert [line for line in run(program) if line.startswith("FAIL")]


def test_every_kernel_of_the_series_is_built() -> None:
    """What the patches touch is compiled for the CPU, too."""
    touched: set[str] = set()
    for patch in sorted((REPOSITORY / "patches").glob("*.patch")):
        found = re.findall(r"^\+\+\+ b/src/ggml-cuda/([\w-]+)\.cu$", patch.read_text(), re.M)
        touched.update(found)
    # The first is ggml's own and takes half a minute. The second needs instructions for eight bits
    # that are not emulated: ggml's program has a case for what the series changes there.
    assert touched - set(KERNELS) - {"solve_tri", "mmq"} == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "k<T, 2><<<g, b, 0, s>>>(x, (y));",
            '::emu::launch("k<T, 2>", ::emu::launch_config(g, b, 0, s),'
            " [=](auto... emu_args) { k<T, 2>(emu_args...); }, x, (y));",
        ),
        (
            "__launch_bounds__(4*f(), 1) k(float * x, int (&y)[2])\n{\n",
            "__launch_bounds__(4*f(), 1) k(float * x, int (&y)[2])\n"
            "{ ::emu::bound(::emu::bound_of(4*f(), 1));\n",
        ),
        ("__launch_bounds__(N) k(int x);", "__launch_bounds__(N) k(int x);"),
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

    In bf16 the first loss is off by what a logit near 1 is rounded by, 2^-9, at most, in TF32 by
    2^-12. AdamW's first step is as large for a gradient that is all rounding; then the losses agree
    within 1e-3.
    """
    command = [sys.executable, "-m", "tests.emulation.train_cuda", builder.backend()]
    env = {**os.environ, "PYGGML_EMULATED_CC": "80"}  # with tensor cores
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    adapters = told["models"].pop("adapters on q4_K")
    halves = told["models"].pop("adapters on f16 with many words")
    for model, found in told["models"].items():
        assert found["cuda:0"] == pytest.approx(found["cpu"], rel=1e-5), model
        assert found["bf16"] != found["cuda:0"], model
        assert found["bf16"][0] == pytest.approx(found["cpu"][0], abs=2**-9), model
        assert found["bf16"] == pytest.approx(found["cpu"], rel=1e-3), model
        assert found["fallbacks"] == []
    many = told["models"]["gpt2 with many words"]
    assert many["tf32"] not in (many["cuda:0"], many["bf16"])
    assert many["tf32"][0] == pytest.approx(many["cpu"][0], abs=2**-12)
    assert many["tf32"] == pytest.approx(many["cpu"], rel=1e-3)
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
    # Both devices round activations to f16, 2^-11, for a matrix of f16.
    assert halves["fallbacks"] == []
    for found in (halves["cuda:0"], halves["bf16"]):
        assert found[0] == pytest.approx(halves["cpu"][0], abs=2**-9)
        assert found == pytest.approx(halves["cpu"], rel=2**-11)
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
