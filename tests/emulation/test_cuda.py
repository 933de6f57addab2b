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

import pytest

from .build import KERNELS, REPOSITORY, Builder, compiler, default_tree, ops_of_table
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
        [program, *names], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]


@pytest.mark.parametrize("op", ops_of_table())
def test_kernel_agrees_with_the_cpu(harness: Path, op: str) -> None:
    lines = run(harness, op)
    assert lines, f"{op}: no case ran"
    assert not [line for line in lines if line.startswith("FAIL")]


# What a careless change would do, and what the harness must say to it.
MISTAKES = {
    "no barrier after the sums": (
        "cumsum-back",
        "            s_sum[warp_id] = sum;\n        }\n        __syncthreads();",
        "            s_sum[warp_id] = sum;\n        }",
        "CUMSUM_BACK",
        "other bits|normalized|is nan",
    ),
    "no barrier before the next round": (
        "cumsum-back",
        "            dst[i] = before + sum;\n        }\n        __syncthreads();",
        "            dst[i] = before + sum;\n        }",
        "CUMSUM_BACK",
        "other bits|normalized|is nan",
    ),
    "a barrier that some threads miss": (
        "cumsum-back",
        "        __syncthreads();\n\n        float before",
        "        if (i >= 0) {\n            __syncthreads();\n        }\n\n        float before",
        "CUMSUM_BACK",
        "threads wait for others|different barriers",
    ),
    "a read past the end": (
        "elementwise-back",
        "if (i >= n) {",
        "if (i > n) {",
        "GELU_BACK",
        "past the end of",
    ),
    "a write past the end": (
        "sum-sqr",
        "        *dst = (float) total;",
        "        dst[1] = dst[0] = (float) total;",
        "SUM_SQR",
        "written .* past the end of result",
    ),
    "an element that is not written": (
        "norm-back",
        "        dst[col*sd.s0] = r*(g - d*k);",
        "        if (col > 0) {\n            dst[col*sd.s0] = r*(g - d*k);\n        }",
        "NORM_BACK",
        "is nan|is -nan",
    ),
    "strides that are not used": (
        "l2-norm-back",
        "grad[col*sg.s0] - x[col*sx.s0]*k",
        "grad[col] - x[col]*k",
        "L2_NORM_BACK",
        "normalized|is nan|is -nan|past the end",
    ),
    "an order that is not fixed": (
        "conv2d-dw-back",
        "    if (threadIdx.x == 0) {\n        dst[i] = sum;\n    }",
        "    if (threadIdx.x == 0) {\n        dst[i] = 0.0f;\n    }\n    __syncthreads();\n"
        "    atomicAdd(dst + i, sum/256.0f*(threadIdx.x%2 ? 1.001f : 0.999f));",
        "CONV_2D_DW_BACK",
        "other bits",
    ),
    "too much shared memory": (
        "fattn-back",
        "    __shared__ float w_s[FATTN_TRAIN_TILE*FATTN_TRAIN_PAD];",
        "    __shared__ float w_s[3*FATTN_TRAIN_TILE*FATTN_TRAIN_PAD];",
        "FLASH_ATTN_EXT_BACK",
        "static shared memory are too many",
    ),
    "a copy that is not waited for": (
        "fattn-back-mma",
        "        cp_async_wait_all();\n        __syncthreads(); // this tile",
        "        __syncthreads(); // this tile",
        "FLASH_ATTN_EXT_BACK/bf16-tiles",
        "is nan|is -nan",
    ),
    "a tile that is overwritten while it is read": (
        "fattn-back-mma",
        "            load(it_next, buf ^ 1);\n        }\n\n        fattn_bf16_c w ",
        "            load(it_next, buf);\n        }\n\n        fattn_bf16_c w ",
        "FLASH_ATTN_EXT_BACK/bf16-tiles",
        "other bits|normalized|is nan|is -nan",
    ),
    "registers of a product in another order": (
        "fattn-train-bf16",
        "        a.x[1] = ggml_cuda_cast<nv_bfloat162>(make_float2(w0.x[2], w0.x[3]));\n"
        "        a.x[2] = ggml_cuda_cast<nv_bfloat162>(make_float2(w1.x[0], w1.x[1]));",
        "        a.x[2] = ggml_cuda_cast<nv_bfloat162>(make_float2(w0.x[2], w0.x[3]));\n"
        "        a.x[1] = ggml_cuda_cast<nv_bfloat162>(make_float2(w1.x[0], w1.x[1]));",
        "FLASH_ATTN_EXT_BACK/bf16-causal",
        "normalized",
    ),
    "tensor cores where f32 is asked for": (
        "fattn-back-mma",
        "ggml_get_op_params_i32(dst, 3 + i) < GGML_PREC_BF16",
        "false",
        "FLASH_ATTN_EXT_BACK/causal",
        "normalized",
    ),
    "a block of too many threads": (
        "dropout",
        "<<<num_blocks, CUDA_DROPOUT_BLOCK_SIZE,",
        "<<<num_blocks, 8*CUDA_DROPOUT_BLOCK_SIZE,",
        "DROPOUT",
        "block of 1 to 1024 threads",
    ),
    "an assertion that supports_op does not know": (
        "cross-entropy-rows",
        "    GGML_ASSERT(logits->nb[0] == sizeof(float));",
        "    GGML_ASSERT(ggml_is_contiguous(logits));",
        "CROSS_ENTROPY_ROWS",
        "GGML_ASSERT",
    ),
}


HEADERS = {"elementwise-back": "gelu-back", "fattn-train-bf16": "fattn-back-mma"}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_harness_sees_mistakes(builder: Builder, tmp_path: Path, mistake: str) -> None:
    name, right, wrong, op, said = MISTAKES[mistake]
    source = name
    if name in HEADERS:  # its text goes where it is included
        name, header = HEADERS[name], (CUDA / f"{name}.cuh").read_text()
        text = (CUDA / f"{name}.cu").read_text()
        text = text.replace(f'#include "{source}.cuh"', header.replace("#pragma once", ""))
    else:
        text = (CUDA / f"{name}.cu").read_text()
    assert right in text, f"{source} has changed: this test must follow"
    program = builder.changed(name, text.replace(right, wrong), tmp_path / "changed")
    failed = [line for line in run(program, op) if line.startswith("FAIL")]
    assert any(re.search(said, line) for line in failed), failed or "all cases passed"


def test_graphs_are_captured_and_launched(builder: Builder) -> None:
    """Another input is seen; memory that the pool has given back is not used."""
    lines = run(builder.graphs())
    assert len(lines) == 8
    assert not [line for line in lines if line.startswith("FAIL")]


def test_graphs_with_memory_that_is_gone_are_seen(builder: Builder, tmp_path: Path) -> None:
    text = (CUDA / "ggml-cuda.cu").read_text()
    right = "if (graph->n_released != n_released) {"
    assert right in text, "ggml-cuda.cu has changed: this test must follow"
    program = builder.graphs(text.replace(right, "if (false) {"), tmp_path / "changed")
    assert [line for line in run(program) if line.startswith("FAIL")]


def test_every_kernel_of_the_series_is_built() -> None:
    """What the patches touch is compiled for the CPU, too."""
    touched: set[str] = set()
    for patch in sorted((REPOSITORY / "patches").glob("*.patch")):
        found = re.findall(r"^\+\+\+ b/src/ggml-cuda/([\w-]+)\.cu$", patch.read_text(), re.M)
        touched.update(found)
    # what is left of the first is ggml's own and takes half a minute; one line of the second
    assert touched - set(KERNELS) - {"binbcast", "solve_tri"} == set()


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
def test_models_train_on_the_emulated_device(builder: Builder) -> None:
    """Whole steps through ggml's scheduler: the CPU's losses; nothing is left to the CPU.

    In bf16 the first loss is off by what a logit near 1 is rounded by, 2^-9, at most. AdamW's first
    step is as large for a gradient that is all rounding; then the losses agree within 1e-3.
    """
    command = [sys.executable, "-m", "tests.emulation.train_cuda", builder.backend()]
    env = {**os.environ, "PYGGML_EMULATED_CC": "80"}  # with tensor cores
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for model, found in told["models"].items():
        assert found["cuda:0"] == pytest.approx(found["cpu"], rel=1e-5), model
        assert found["bf16"] != found["cuda:0"], model
        assert found["bf16"][0] == pytest.approx(found["cpu"][0], abs=2**-9), model
        assert found["bf16"] == pytest.approx(found["cpu"], rel=1e-3), model
        assert found["fallbacks"] == []
    assert told["moved"]["devices"] == ["cuda:0"]
    assert told["moved"]["same"]
    assert told["moved"]["losses"] == pytest.approx(told["models"]["gpt2 plain"]["cpu"], rel=1e-5)
    assert 0 < told["graphs"]["captured"] <= told["graphs"]["launched"] / 2
    assert told["steps"] == {model: {} for model in told["steps"]}
    assert told["flash"] == {"8": True, "64": True, "256": True, "288": False}
