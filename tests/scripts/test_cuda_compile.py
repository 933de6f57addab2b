# SPDX-License-Identifier: MIT
"""What the patches add or change of the CUDA backend compiles for the GPUs that it is made for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ..emulation.build import REPOSITORY, default_tree
from .loading import load

SCRIPT = REPOSITORY / "scripts" / "cuda_compile.py"
TREE = default_tree()
CUDA = TREE / "src" / "ggml-cuda"
NVCC = shutil.which("nvcc")
compiling = load(SCRIPT)
# Bytes of a thread: the gradient of attention with heads of 128 has 40 in CUDA 13.0.
SPILLED_MAX = 64
PATCHED = compiling.patched(REPOSITORY / "patches")
ADDED = compiling.added(REPOSITORY / "patches")


@pytest.fixture(scope="module")
def nvcc() -> str:
    if NVCC is None:
        pytest.skip("no nvcc is here")
    if not (CUDA / "norm-back.cu").exists():
        pytest.skip("no patched ggml is here")
    if not compiling.has_cublas(NVCC):
        pytest.skip("no headers of cuBLAS are here; python scripts/cuda_compile.py --fetch")
    return NVCC


# A few seconds each; the others with the slow tests.
QUICK = ("cross-entropy-rows", "norm-back", "out-prod")


def quick(nvcc: str, source: Path, gpu: int = compiling.QUICK[0]) -> Any:
    return compiling.compile_one(nvcc, source, compiling.folders(TREE, None), [gpu], quick=True)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PATCHED],
)
def test_compiles_for_one_gpu(nvcc: str, name: str) -> None:
    """The device's machine code for sm_90; about two minutes of one core for all."""
    done = quick(nvcc, CUDA / f"{name}.cu")
    assert done.ok, done.said
    spilled = {use.kernel: use.spilled for use in done.usage if use.spilled > SPILLED_MAX}
    assert not spilled, "registers do not suffice: bytes of each thread go through memory"
    assert not compiling.cannot_be_launched(done.usage)
    if name in ADDED:  # ptxas keeps launch bounds on every GPU
        assert [use.kernel for use in done.usage if not use.threads] == []


@pytest.mark.slow
def test_registers_without_launch_bounds_are_seen(nvcc: str, tmp_path: Path) -> None:
    """1,024 threads of NORM_BACK with 67 registers, more than a GPU of 7.5 has."""
    text = (CUDA / "norm-back.cu").read_text()
    assert " __launch_bounds__(block_size)" in text, (
        "norm-back.cu has changed: this test must follow"
    )
    source = tmp_path / "norm-back.cu"
    source.write_text(text.replace(" __launch_bounds__(block_size)", ""))
    done = quick(nvcc, source, 75)
    assert done.ok, done.said
    assert not any(use.threads for use in done.usage)
    (told,) = compiling.cannot_be_launched(done.usage)
    assert told.startswith("sm_75: norm_back_f32<1024> has 67 registers")

    done = quick(nvcc, CUDA / "norm-back.cu", 75)
    assert {use.threads for use in done.usage} == {32, 256, 1024}
    assert compiling.cannot_be_launched(done.usage) == []


def ptx(nvcc: str, source: Path, folder: Path) -> str:
    """What nvcc makes of the device's code, before it is that of one GPU."""
    out = folder / "out.ptx"
    command = [
        nvcc,
        *compiling.FLAGS,
        "-arch=sm_90",
        *(f"-I{p}" for p in compiling.folders(TREE, None)),
    ]
    subprocess.run([*command, "-ptx", str(source), "-o", str(out)], check=True, capture_output=True)
    return out.read_text()


@pytest.mark.parametrize(
    "name",
    ["softcap", *(pytest.param(n, marks=pytest.mark.slow) for n in ("unary", "fattn-back-mma"))],
)
def test_tanh_keeps_its_digits(nvcc: str, tmp_path: Path, name: str) -> None:
    """-use_fast_math would make it an instruction that has 11 bits."""
    assert "tanh.approx" not in ptx(nvcc, CUDA / f"{name}.cu", tmp_path)


def test_tanh_without_its_digits_is_seen(nvcc: str, tmp_path: Path) -> None:
    text = (CUDA / "softcap.cu").read_text()
    assert "ggml_cuda_tanhf(" in text, "softcap.cu has changed: this test must follow"
    source = tmp_path / "softcap.cu"
    source.write_text(text.replace("ggml_cuda_tanhf(", "tanhf("))
    assert "tanh.approx" in ptx(nvcc, source, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("ctx.stream()", "ctx.stream_of()", "stream_of"),
        ("const int      tid =", "const int unused = 0; const int tid =", "never referenced"),
        ("s_sum[block_size/WARP_SIZE]", "s_sum[20000]", "too much shared data"),
        ("    ggml_cuda_pdl_sync();", '    asm volatile("no.such;");', "Unknown modifier '.such'"),
    ],
    ids=["host code", "a warning", "shared memory", "PTX"],
)
def test_quick_sees_mistakes(nvcc: str, tmp_path: Path, right: str, wrong: str, said: str) -> None:
    text = (CUDA / "norm-back.cu").read_text()
    assert right in text, "norm-back.cu has changed: this test must follow"
    source = tmp_path / "norm-back.cu"
    source.write_text(text.replace(right, wrong))
    done = quick(nvcc, source)
    assert not done.ok
    assert said in done.said


def test_usage_is_read() -> None:
    told = (
        "ptxas info    : 26792 bytes gmem\n"
        "ptxas info    : Compiling entry function '_Z4bigv' for 'sm_90'\n"
        "ptxas info    : Function properties for _Z4bigv\n"
        "    48 bytes stack frame, 44 bytes spill stores, 52 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size\n"
        "x.cu(3): warning #177-D: variable was declared but never referenced\n"
        "ptxas info    : Compiling entry function '_Z5smallv' for 'sm_90'\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 32 registers, used 1 barriers, 256 bytes smem\n"
    )
    assert compiling.usage_of(told) == [
        compiling.Usage("_Z4bigv", registers=255, shared=0, spilled=44, gpu=90),
        compiling.Usage("_Z5smallv", registers=32, shared=256, spilled=0, gpu=90),
    ]
    assert compiling.complaints_in(told).startswith("x.cu(3): warning")
    assert "ptxas" not in compiling.complaints_in(told)


def test_registers_of_a_block() -> None:
    """A warp takes them in units of 256; without launch bounds a block has 1,024 threads."""
    usage = [
        compiling.Usage("a", registers=64, shared=0, spilled=0),
        compiling.Usage("b", registers=65, shared=0, spilled=0, gpu=75),
        compiling.Usage("c", registers=255, shared=0, spilled=0, threads=256),
        compiling.Usage("d", registers=67, shared=0, spilled=0, threads=896),
    ]
    assert [use.registers_of_block() for use in usage] == [65536, 73728, 65536, 64512]
    (told,) = compiling.cannot_be_launched(usage)
    assert told.startswith("sm_75: b has 65 registers and blocks of any number of threads, 73728")
    own = compiling.Usage("_ZL18quantize_mmq_nvfp4ILb0ELb1EEvPKf", 67, shared=0, spilled=0)
    assert own.registers_of_block() == 9216  # blocks of 128 threads


def test_table_has_a_row_for_each_kernel() -> None:
    usage = [
        compiling.Usage("_Z1kILi1EEvv", 40, 128, 0, gpu=75, threads=32),
        compiling.Usage("_Z1kILi2EEvv", 60, 256, 4, gpu=75, threads=64),
        compiling.Usage("_Z1kILi1EEvv", 41, 128, 0, gpu=90, threads=32),
    ]
    told = compiling.table_of(usage)
    assert told[0] == "| kernel | threads | shared | sm_75 | sm_90 |"
    if shutil.which("c++filt"):
        assert told[2:] == ["| `k` | 64 | 256 | 60 +4 | 41 |"]


def test_headers_that_cannot_be_fetched_are_told(tmp_path: Path) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "release 12.8, V12.8.61"\n')
    fake.chmod(0o755)
    # no index, as without a network, but at once
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
    env["PIP_FIND_LINKS"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--fetch"],
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cuBLAS' headers could not be fetched" in done.stderr
    assert "--cublas" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_compiles_for_every_gpu(nvcc: str) -> None:
    """As the backend's build does it, for sm_75 to sm_120; blocks have the registers they need."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--tree", TREE],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_patched_files_are_found() -> None:
    assert {"fattn-back-mma", "ggml-cuda", "norm-back"} <= set(PATCHED)
    assert {"fattn-back-mma", "norm-back"} <= set(ADDED) < set(PATCHED)
    assert "ggml-cuda" not in ADDED


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("Cuda compilation tools, release 13.0, V13.0.88", "nvidia-cublas==13.0.*"),
        ("Cuda compilation tools, release 12.8, V12.8.93", "nvidia-cublas-cu12"),
    ],
)
def test_package_of_cublas(version: str, package: str) -> None:
    assert compiling.cublas_package(version) == package


def test_headers_are_unpacked(tmp_path: Path) -> None:
    wheel = tmp_path / "cublas.whl"
    with zipfile.ZipFile(wheel, "w") as stored:
        stored.writestr("nvidia/cu13/include/cublas_v2.h", "// cuBLAS")
        stored.writestr("nvidia/cu13/include/cublas_api.h", "// its functions")
        stored.writestr("nvidia/cu13/lib/libcublas.so.13", "not wanted")
    assert compiling.unpack_headers(wheel, tmp_path / "into") == 2
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == [
        "cublas_api.h",
        "cublas_v2.h",
    ]
