# SPDX-License-Identifier: MIT
"""scripts/sanitize.py: what it reads out of reports, and the table of ops under each sanitizer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .loading import load

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "sanitize.py"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/ is not here")
needs_gcc = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="no Linux with GCC"
)

ADDRESS = """
=================================================================
==42==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x6060 at pc 0x7fd2
READ of size 4 at 0x6060 thread T0
    #0 0x7fd2 in ggml_fp32_to_fp16_row /src/ggml.c:478
SUMMARY: AddressSanitizer: heap-buffer-overflow /src/ggml.c:478 in ggml_fp32_to_fp16_row
"""
UNDEFINED = """/src/ggml.c:478:16: runtime error: load of misaligned address 0x60b1 for type 'float'
0x60b1: note: pointer points here
/src/ggml.c:478:16: runtime error: load of misaligned address 0x60b5 for type 'float'
"""
RACE = """==================
WARNING: ThreadSanitizer: data race (pid=7)
  Write of size 2 at 0x7fff by thread T3:
SUMMARY: ThreadSanitizer: data race /src/ggml.c:478 in ggml_fp32_to_fp16_row
==================
"""


@pytest.fixture(scope="module")
def sanitize() -> ModuleType:
    return load(SCRIPT)


def test_each_place_is_told_once(sanitize: ModuleType) -> None:
    found = sanitize.distinct("some output\n" + ADDRESS + UNDEFINED + RACE + RACE)
    assert {key: count for key, (count, _) in found.items()} == {
        "AddressSanitizer: heap-buffer-overflow /src/ggml.c:478 in ggml_fp32_to_fp16_row": 1,
        "/src/ggml.c:478:16: runtime error: load of misaligned address … for type 'float'": 2,
        "ThreadSanitizer: data race /src/ggml.c:478 in ggml_fp32_to_fp16_row": 2,
    }
    assert sanitize.distinct("a test that says: runtime error: nothing\nERROR: no\n") == {}


LEAKS = """
==42==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 64 byte(s) in 1 object(s) allocated from:
    #0 0x7fd2 in __interceptor_malloc /gcc/asan_malloc_linux.cpp:69
    #1 0x7fd3 in ggml_init /build/vendor/ggml/src/ggml.c:1539
    #2 0x7fd4 in _cffi_f_ggml_init /build/_ggml.cpp:7

Indirect leak of 9 byte(s) in 3 object(s) allocated from:
    #0 0x7fd2 in __interceptor_malloc /gcc/asan_malloc_linux.cpp:69
    #1 0x7fd5  (/site/pyggml/lib/libpyggml-base.so+0x1234)

Direct leak of 5000 byte(s) in 2 object(s) allocated from:
    #0 0x7fd2 in __interceptor_malloc /gcc/asan_malloc_linux.cpp:69
    #1 0x5555 in _PyMem_RawMalloc Objects/obmalloc.c:99
"""


def test_leaks_of_others_are_passed_over(sanitize: ModuleType) -> None:
    found = sanitize.leaks(LEAKS)
    assert {key: count for key, (count, _) in found.items()} == {
        "LeakSanitizer: ggml_init /build/vendor/ggml/src/ggml.c:1539": 1,
        "LeakSanitizer: (/site/pyggml/lib/libpyggml-base.so+0x1234)": 1,
    }
    assert sanitize.distinct(LEAKS) == {}


PLANTED = {
    "address": """
from pyggml import ffi, lib
lib.gguf_init_empty()
source, result = ffi.new("float[4]"), ffi.new("ggml_fp16_t[64]")
lib.ggml_fp32_to_fp16_row(source, result, 64)
odd = ffi.cast("float *", ffi.cast("char *", result) + 1)
lib.ggml_fp32_to_fp16_row(odd, result, 3)
""",
    "thread": """
import threading
from pyggml import ffi, lib
source, result = ffi.new("float[]", 256), ffi.new("ggml_fp16_t[]", 256)
start = threading.Barrier(2)
def write():
    start.wait()
    for _ in range(200):
        lib.ggml_fp32_to_fp16_row(source, result, 256)
threads = [threading.Thread(target=write) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
}
FOUND = {
    "address": ("heap-buffer-overflow", "load of misaligned address", "gguf_init_empty"),
    "thread": ("data race",),
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["address", "thread"])
def test_planted_mistakes_are_found(kind: str) -> None:
    done = run(kind, "--", "-c", PLANTED[kind])
    assert done.returncode == 1, done.stdout + done.stderr
    for what in FOUND[kind]:
        assert what in done.stdout


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["address", "thread"])
def test_the_ops_run_clean(kind: str) -> None:
    done = run(kind)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]
    assert " 0 failed" in done.stdout
    assert done.stdout.count(", 0 places reported") == 3
