# SPDX-License-Identifier: MIT
"""The packed product by tiles: its own source with the instructions as loops, on any CPU.

Where the CPU has AMX, the installed library must give the same bits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyggml import _ggml
from pyggml.backend.cpu_sets import present

from ..build import compiler, default_tree

HERE = Path(__file__).resolve().parent
TREE = default_tree()
LIBS = Path(_ggml.__file__).parent / "lib"
SOURCES = ("packed-gemm.cpp", "packed-gemm.h", "packed-gemm-pack.h", "packed-gemm-amx.h")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a program's symbols go before a library's"),
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler is here"),
    pytest.mark.skipif(
        not (TREE / "src/ggml-cpu/train/packed-gemm-amx.h").exists(),
        reason="no patched ggml is here",
    ),
    pytest.mark.skipif(
        not (LIBS / "libpyggml-cpu.so").exists(), reason="the libraries of a wheel for others"
    ),
]

MISTAKES = {
    "a row of tiles twice": ("packed-gemm-amx.h", "(2, 5, 6)", "(2, 4, 6)"),
    "stride of src0": ("packed-gemm-amx.h", "b + 16, PG_NR*sizeof(float)", "b + 16, 64"),
    "a row less": ("packed-gemm-amx.h", "= 16; // rows", "= 15; // rows"),
    "addends left out": ("packed-gemm-amx.h", "if (plain && rows", "if (rows"),
    "sums that are kept": ("packed-gemm-amx.h", "    _tile_zero(3);\n", ""),
    "k that ends early": ("packed-gemm-amx.h", "i < nu; i += 16", "i + 16 < nu; i += 16"),
    "no zeros behind the last k": ("packed-gemm-pack.h", "&& !TILES && end < nu", "&& false"),
    "tiles of columns": ("packed-gemm-pack.h", "        pg_transpose(t);\n", ""),
    "no configuration": ("packed-gemm-amx.h", "_tile_loadconfig(config);", ""),
}


def build(folder: Path, mistake: tuple[str, str, str] | None = None) -> Path:
    """Compile the products with the emulated packed product; returns the program."""
    for name in SOURCES:
        text = (TREE / "src/ggml-cpu/train" / name).read_text()
        if mistake and mistake[0] == name:
            assert text.count(mistake[1]) == 1, f"{name} has changed: this test must follow"
            text = text.replace(mistake[1], mistake[2])
        (folder / name).write_text(text)
    for header in HERE.glob("*.h"):
        shutil.copy(header, folder)
    return link(folder / "emulated", HERE / "products.cpp", folder / "packed-gemm.cpp")


def link(program: Path, *sources: Path) -> Path:
    command = [compiler() or "g++", "-std=c++17", "-O1", "-w", *map(str, sources), "-o"]
    command += [
        str(program),
        *(f"-I{TREE / p}" for p in ("include", "src", "src/ggml-cpu", "src/ggml-cpu/train")),
    ]
    command += [f"-L{LIBS}", "-lpyggml-cpu", "-lpyggml-base", f"-Wl,-rpath,{LIBS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def told(program: Path, **env: str) -> list[str]:
    done = subprocess.run(
        [program], capture_output=True, text=True, check=False, env={**os.environ, **env}
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return done.stdout.splitlines()


def failed(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("FAIL")]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return told(build(tmp_path_factory.mktemp("emulated")))


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link(tmp_path_factory.mktemp("native") / "native", HERE / "products.cpp")


def test_products(emulated: list[str]) -> None:
    assert len(emulated) == 82
    assert failed(emulated) == []


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(name, marks=[] if i < 1 else pytest.mark.slow)
        for i, name in enumerate(MISTAKES)
    ],
)
def test_mistakes_are_seen(tmp_path: Path, mistake: str) -> None:
    assert failed(told(build(tmp_path, MISTAKES[mistake])))


def granted() -> bool:
    """Whether this system lets a process use tiles: arch_prctl(ARCH_REQ_XCOMP_PERM)."""
    if not {"amx_tile", "amx_bf16", "avx512_bf16"} <= present():
        return False
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(158, 0x1023, 18) != 0)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_instructions_give_the_same_bits(emulated: list[str], native: Path) -> None:
    if not granted():
        pytest.skip("AMX is not here")
    assert told(native) == emulated
    without = told(native, GGML_CPU_DISABLE_AMX="1")
    assert failed(without) == []
    assert without != emulated


SMALL_STACK = """
import ctypes, sys

class stack_t(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

libc = ctypes.CDLL(None)
memory = ctypes.create_string_buffer(4096)
stack = stack_t(ctypes.addressof(memory), 0, len(memory))
assert libc.sigaltstack(ctypes.byref(stack), None) == 0
refused = libc.syscall(158, 0x1023, 18) != 0

import numpy as np
import pyggml as pg

x = pg.tensor(np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32))
with pg.autocast("bf16"):
    y = x @ x.T
sys.stdout.write(f"{refused} {hash(y.numpy().tobytes())}")
"""


def test_a_system_that_refuses_is_heard() -> None:
    """A stack for signals that cannot hold the tiles; products are then those without AMX."""
    if not granted():
        pytest.skip("AMX is not here")

    def product(code: str, **more: str) -> list[str]:
        env = {**os.environ, "PYTHONHASHSEED": "0", **more}
        env.pop("PYTHONFAULTHANDLER", None)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
        return done.stdout.split()

    large = SMALL_STACK.replace("4096", str(1 << 16))
    assert product(SMALL_STACK)[0] == "True"
    assert product(large)[0] == "False"
    without = product(large, GGML_CPU_DISABLE_AMX="1")[1]
    assert product(SMALL_STACK)[1] == without
    assert product(large)[1] != without
