# SPDX-License-Identifier: MIT
"""The Metal backend's own kernels and host code on an emulated device; no Apple hardware is needed.

build.py makes a ggml backend of them; context.cpp says what it watches while an op runs: writes
beyond tensors, results left unwritten, races, threads that diverge.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..build import FAST_OPS as CUDA_FAST_OPS
from ..build import ops_of_table
from .build import (
    FAST,
    HOST_FILES,
    OURS,
    Builder,
    build,
    build_counted,
    build_harness,
    ggml_tree,
    kernels_of,
)
from .mistakes import MISTAKES

HERE = Path(__file__).resolve().parent
KERNELS = ggml_tree() / "src" / "ggml-metal" / "kernels"

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("g++") is None, reason="no Linux with g++"
    ),
    pytest.mark.skipif(
        not all((KERNELS / f"{name}.metal").is_file() for name in OURS),
        reason="no vendored tree with the training kernels of Metal",
    ),
]

# Ops of pyggml.ops whose gradient is one of our kernels, and the kernels that must have run.
OPS = {
    "gelu": {"kernel_act_back_f32"},
    "gelu_erf": {"kernel_act_back_f32"},
    "gelu_quick": {"kernel_act_back_f32"},
    "tanh": {"kernel_act_back_f32"},
    "sigmoid": {"kernel_act_back_f32"},
    "elu": {"kernel_act_back_f32"},
    "xielu": {"kernel_act_back_f32"},
    "hardswish": {"kernel_act_back_f32"},
    "hardsigmoid": {"kernel_act_back_f32"},
    "leaky_relu": {"kernel_act_back_f32"},
    "clamp": {"kernel_act_back_f32"},
    "reglu": {"kernel_glu_back_f32"},
    "geglu": {"kernel_glu_back_f32"},
    "geglu_erf": {"kernel_glu_back_f32"},
    "geglu_quick": {"kernel_glu_back_f32"},
    "swiglu": {"kernel_glu_back_f32"},
    "swiglu_oai": {"kernel_glu_back_f32"},
    "norm": {"kernel_norm_back_f32"},
    "rms_norm": {"kernel_rms_norm_back_f32"},
    "l2_norm": {"kernel_l2_norm_back_f32"},
    "group_norm": {"kernel_norm_back_f32", "kernel_group_norm_f32"},
    "soft_max": {"kernel_soft_max_back_f32"},
    "get_rows": {"kernel_zero_f32", "kernel_get_rows_back_f32"},
    "repeat_back": {"kernel_repeat_back_f32", "kernel_repeat_back_f32_4"},
    "broadcast_to": {"kernel_repeat_back_f32"},
    "sum_sqr": {"kernel_sum_sqr_f32", "kernel_sum_sqr_f32_4", "kernel_sum_parts_f32"},
    "sum": {"kernel_add1_f32"},
    "add1": {"kernel_add1_f32"},
    "dropout": {"kernel_dropout_f32"},
    "cross_entropy_rows": {"kernel_cross_entropy_rows_f32", "kernel_cross_entropy_rows_back_f32"},
    "cross_entropy_loss": {"kernel_cross_entropy_loss_f32", "kernel_cross_entropy_loss_back_f32"},
    "out_prod": {"kernel_out_prod_f32_f32"},
    "mul_mat_id": {
        "kernel_mul_mat_id_back_order",
        "kernel_mul_mat_id_back_as_f32",
        "kernel_mul_mat_id_back_b_f32",
        "kernel_mul_mat_id_back_sum_f32",
    },
    "flash_attn_ext": {
        "kernel_fa_back_q_f32_d64",
        "kernel_fa_back_kv_f32_d64",
        "kernel_fa_back_sinks",
    },
    "pool_2d": {"kernel_pool_2d_back_f32"},
    "pool_1d": {"kernel_pool_1d_back_f32"},
    "conv_2d": {"kernel_im2col_back_f32"},
    "im2col_3d": {"kernel_im2col_3d_f32", "kernel_im2col_3d_back_f32"},
    "conv_2d_dw": {"kernel_conv_2d_dw_back_x_f32", "kernel_conv_2d_dw_back_k_f32"},
    "upscale": {"kernel_upscale_back_f32"},
    "interpolate": {"kernel_upscale_back_f32"},
    "cumsum": {"kernel_cumsum_back_f32"},
    "diag_mask_inf": {"kernel_diag_mask_f32"},
    "diag_mask_zero": {"kernel_diag_mask_f32"},
}

MODELS = ("gpt2", "gpt2-flash", "llama", "llama-flash", "llama-experts", "images")


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest) -> Path:
    """Where objects are kept from run to run."""
    return Path(request.config.cache.mkdir("emulated-metal"))  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def library(folder: Path) -> Path:
    """The backend."""
    return build(folder)


def run_table(harness: Path, library: Path, *names: str) -> list[str]:
    """A line for each case of these ops or cases, without names for each that is not slow."""
    done = subprocess.run(
        [harness, *names],
        env={**os.environ, "GGML_BACKEND_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]


@pytest.fixture(scope="session")
def harness(folder: Path) -> Path:
    """The program that runs the table of ../common."""
    return build_harness(folder)


@pytest.fixture(scope="session")
def fast_table(folder: Path, harness: Path) -> list[str]:
    """What the cases of FAST_OPS say."""
    return run_table(harness, build(folder, FAST), *FAST_OPS)


@pytest.fixture(scope="session")
def table(harness: Path, library: Path) -> list[str]:
    """What the table's cases say."""
    return run_table(harness, library)


def run(library: Path, log: Path, *arguments: str) -> list[dict[str, object]]:
    """The lines that run.py prints; an error of the emulated device ends it."""
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), *arguments],
        env={
            **os.environ,
            "GGML_BACKEND_PATH": str(library),
            "PYGGML_EMULATED_LOG": str(log),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_parser_reads_kernels() -> None:
    """Templates by their host names, plain functions by their own, attributes in any order."""
    source = """
    #if defined(GGML_METAL_HAS_TENSOR)
    kernel void kernel_b(device char * x) {}
    #endif
    template <typename T>
    kernel void kernel_a(constant args & a [[buffer(3)]], device T * x,
            uint i[[thread_index_in_simdgroup]]) {}
    template [[host_name("kernel_a_f32")]] kernel a_t kernel_a<float>;
    template [[host_name("kernel_a_f16")]]
    kernel void kernel_a<half>(constant args & a, device half * x, uint i);
    kernel void kernel_c(device const float * x) {} // kernel void kernel_d(int x)
    #define KERNELS(name, T) \\
    template [[host_name("kernel_a_" name "_1")]] kernel a_t kernel_a<T, 1>; \\
    template [[host_name("kernel_a_" name "_2")]] kernel a_t kernel_a<T, 2>;
KERNELS("bf16", bfloat)
    """
    found = {kernel.host_name: kernel.call for kernel in kernels_of(source)}
    assert found == {
        "kernel_c": "kernel_c",
        "kernel_a_f32": "kernel_a<float>",
        "kernel_a_f16": "kernel_a<half>",
        "kernel_a_bf16_1": "kernel_a<bfloat, 1>",
        "kernel_a_bf16_2": "kernel_a<bfloat, 2>",
    }


def test_a_source_is_never_there_by_half(tmp_path: Path) -> None:
    """Each worker writes the sources, while another compiles them."""
    builder = Builder.__new__(Builder)
    builder.folder = tmp_path
    path = builder.generate("a.h", "one\n")
    with path.open() as reading:
        builder.generate("a.h", "two and more\n")
        assert reading.read() == "one\n"
    assert path.read_text() == "two and more\n"
    assert list(tmp_path.iterdir()) == [path]


def test_accesses_are_counted(folder: Path) -> None:
    """Products of matrices, clocks of 32 banks of 4 bytes, segments of 64 bytes."""
    done = subprocess.run([build_counted(folder)], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["name"]: row["counts"] for row in rows} == {
        "neighbours": [0, 1, 2],
        "one number": [0, 1, 1],
        "rows of 32": [0, 32, 0],
        "rows of 33": [0, 1, 0],
        "vectors": [0, 4, 8],
        "half of the lanes": [0, 1, 0],
        "matrix": [0, 2, 0],
        "matrix, transposed": [0, 4, 0],
        "matrix in rows of 32": [0, 8, 0],
        "product": [1, 0, 0],
    }


def test_every_kernel_has_a_case() -> None:
    """A new kernel of ours needs an op here whose gradient runs it, or a type of one that has."""
    covered = set().union(*OPS.values())
    missing = []
    for name in OURS:
        for kernel in kernels_of((KERNELS / f"{name}.metal").read_text()):
            base = kernel.call.split("<")[0]
            if not any(other.startswith(base) for other in covered):
                missing.append(kernel.host_name)
    # Sums of split products need a longer k than the table has: test-backend-ops runs them.
    assert missing == ["kernel_out_prod_sum_f32"]


@pytest.mark.slow
def test_gradients(library: Path, tmp_path: Path) -> None:
    """Each op × our kernel source, on the device that runs them, against NumPy in float64."""
    rows = run(library, tmp_path / "log", "cases", *OPS)
    bad = [row for row in rows if row["verdict"] != "OK"]
    assert not bad
    assert {str(row["case"]).split("-")[0] for row in rows} == set(OPS)
    ran = {line.split("\t")[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert set().union(*OPS.values()) <= ran


# The series has its own kernels of it on CUDA alone; Metal's are ggml's.
ON_CUDA = {"FLASH_ATTN_EXT"}


# Ops of CUDA's list whose kernels are ggml's on Metal.
UPSTREAM_OPS = {"ACC", "GROUP_NORM", "MEAN", "NORM", "OPT_STEP_SGD", "RMS_NORM", "SOFT_MAX"}
UPSTREAM_OPS |= {"OPT_STEP_ADAMW", "SUM", "SUM_ROWS"}
FAST_OPS = [op for op in CUDA_FAST_OPS if op not in UPSTREAM_OPS]


@pytest.mark.parametrize("op", FAST_OPS)
def test_kernel_agrees_with_the_cpu(fast_table: list[str], op: str) -> None:
    """The cases that the CUDA kernels run, too: odd sizes, views, sources that are written over."""
    lines = [line for line in fast_table if line.split()[1].startswith(f"{op}/")]
    assert lines, f"{op}: no case ran"
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in ops_of_table() if op not in {*ON_CUDA, *FAST_OPS}])
def test_kernel_agrees_with_the_cpu_too(table: list[str], op: str) -> None:
    lines = [line for line in table if line.split()[1].startswith(f"{op}/")]
    assert lines, f"{op}: no case ran"
    assert not [line for line in lines if line.startswith("FAIL")]


@pytest.mark.slow
def test_gpus_of_other_lanes_train_nothing(
    harness: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels count on SIMD groups of 32 lanes; Intel's and AMD's have others."""
    source = (KERNELS.parent / "ggml-metal-train.cpp").read_text()
    supports = source[source.index("bool ggml_metal_train_supports_op(") :]
    ops = re.findall(r"case GGML_OP_(\w+):", supports[: supports.index("\n}\n")])
    assert len(ops) > 25
    monkeypatch.setenv("PYGGML_EMULATED_INTEL", "1")
    lines = run_table(harness, library, *ops)
    told = ("supports_op says no", "refused as it should")
    assert len(lines) > 300
    assert not [line for line in lines if not line.endswith(told)]


def test_no_constant_is_nan() -> None:
    """Fast math may take a NaN or an infinity among floats for any number: bits are written."""
    for name in OURS:
        text = (KERNELS / f"{name}.metal").read_text() + (KERNELS / "train.h").read_text()
        text = re.sub(r"//[^\n]*", "", text)
        assert not re.findall(r"\bNAN\b|\bnan\(|INFINITY|as_type<float>\(0x7f", text), name


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=[] if m.fast else pytest.mark.slow) for name, m in MISTAKES.items()],
)
def test_emulation_sees_mistakes(folder: Path, harness: Path, mistake: str) -> None:
    m = MISTAKES[mistake]
    is_host = m.source in HOST_FILES
    path = KERNELS.parent / m.source if is_host else KERNELS / f"{m.source}.metal"
    text = path.read_text()
    assert m.right in text, f"{path.name} has changed: this test must follow"
    changed = {m.source: text.replace(m.right, m.wrong)}
    library = build(folder, m.kernels if is_host else (m.source,), changed=changed)
    failed = [x for x in run_table(harness, library, m.case) if x.startswith("FAIL")]
    assert any(re.search(m.said, line) for line in failed), failed or "all cases passed"


@pytest.mark.slow
def test_command_buffers_are_short(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS ends those that take a second; a step is in as many as its work makes."""
    losses, nodes = [], []
    for name, gflop in {"whole": "", "parts": "1e-3"}.items():
        monkeypatch.setenv("GGML_METAL_BUFFER_GFLOP", gflop)
        losses += [row["metal"] for row in run(library, tmp_path / name, "train", "gpt2")]
        buffers = (tmp_path / name).read_text().split("end\tof a command buffer\n")
        nodes.append([len(buffer.splitlines()) for buffer in buffers if buffer])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert sum(nodes[0]) >= sum(nodes[1]) * 0.9
    assert max(nodes[0]) > 50
    assert max(nodes[1]) < max(nodes[0]) / 2
    assert len(nodes[1]) > 2 * len(nodes[0])


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["2 fused", "2 apart", "3 apart"])
def test_a_killed_step_ends_the_run(library: Path, tmp_path: Path, graph: str) -> None:
    """Neither its loss nor its half-written weights are used; the checkpoint before stands."""
    folder = tmp_path / "run"
    *steps, error, again = run(library, tmp_path / "log", "kill", str(folder), *graph.split())
    assert [row["step"] for row in steps] == [1, 2]
    assert "metal failed to compute" in str(error["error"])
    assert "resume from the last checkpoint" in str(again["error"])
    assert Path(str(error["last"])).name == "step-000002"
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-000001", "step-000002"]


@pytest.mark.slow
def test_gradients_of_long_sums_are_added(library: Path, tmp_path: Path) -> None:
    """A stored gradient has no memory behind it for the parts of a sum that is split."""
    wanted, got = (row["grad"] for row in run(library, tmp_path / "log", "add"))
    assert got == pytest.approx(wanted, rel=1e-3, abs=1e-1)
    ran = {line.split("\t")[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert "kernel_out_prod_sum_f32" in ran


@pytest.mark.slow
def test_steps_stay_on_the_device(library: Path, tmp_path: Path) -> None:
    """`pyggml devices --ops` has nothing to tell of Metal, nor have other optimizers and types."""
    rows = run(library, tmp_path / "log", "steps")
    left = {str(row["model"]): row["left"] for row in rows if "model" in row}
    assert {"gpt2", "llama", "llama with experts", "bert-mlm", "t5", "cnn", "resnet"} <= set(left)
    assert not any(left.values()), left
    # "auto" attention is the fused op where there are kernels for the width of a head
    flash = {row["width"]: row["flash"] for row in rows if "width" in row}
    assert flash == {16: False, 32: True, 64: True}


@pytest.mark.slow
def test_training_stays_on_the_device(library: Path, tmp_path: Path) -> None:
    """The models' steps have no op that Metal lacks, and lose what they lose on the CPU."""
    for row in run(library, tmp_path / "log", "train", *MODELS):
        assert row["lacking"] == [], row["model"]
        assert row["metal"] == pytest.approx(row["cpu"], rel=1e-3), row["model"]
