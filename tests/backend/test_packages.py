# SPDX-License-Identifier: MIT
"""GPU backends of packages beside pyggml: loaded by an entry point, or a warning that says why."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pyggml as pg
from pyggml.backend.library_files import libraries
from pyggml.backend.packages import load_backends

GGML = Path(__file__).resolve().parents[2] / "vendor" / "ggml"
LIBRARIES = libraries()
COMPILER = shutil.which("cc") or ""
COMPUTE = "import pyggml as pg; print((pg.ones(3, 4) @ pg.ones(4, 2)).numpy().sum())"
# A backend without devices, as one of a GPU is where there is none.
SOURCE = """
#include "ggml-backend-impl.h"
const char pyggml_build[] = "BUILD";
static const char * name(ggml_backend_reg_t reg) { (void) reg; return "fake"; }
static size_t count(ggml_backend_reg_t reg) { (void) reg; return 0; }
void ggml_log_internal(enum ggml_log_level level, const char * format, ...);
ggml_backend_reg_t ggml_backend_init(void) {
    ggml_log_internal(GGML_LOG_LEVEL_ERROR, "no GPU answers\\n");
    static struct ggml_backend_reg reg = { GGML_BACKEND_API_VERSION, { name, count, 0, 0 }, 0 };
    return &reg;
}
"""
pytestmark = pytest.mark.skipif(
    not hasattr(pg.lib, "pyggml_load_backend"), reason="the build is older than these packages"
)


def compute(
    folder: Path, library: Path | str | None, attribute: str = "library", before: str = ""
) -> str:
    """Install a package that names a library, compute beside it; returns what stderr got.

    `before` is code that the package's import runs.
    """
    named = library and str(library)
    (folder / "fake_backend.py").write_text(f"{before}\ndef library():\n    return {named!r}\n")
    info = folder / "fake_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 1.0\n")
    points = f"[pyggml.backends]\nfake = fake_backend:{attribute}\n"
    (info / "entry_points.txt").write_text(points)
    done = subprocess.run(
        [sys.executable, "-c", COMPUTE], env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "24.0", done.stderr
    return done.stderr


def test_a_package_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    error = compute(tmp_path, tmp_path / "libpyggml-fake.so")
    assert "the backend fake of the package fake-backend cannot be used" in error
    assert "libpyggml-fake.so is missing; install the package again" in error


def test_a_package_without_the_function_is_a_warning(tmp_path: Path) -> None:
    assert "install the package again" in compute(tmp_path, "", "other")


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("assert False, 'a bug'", "AssertionError: a bug"),
        ("class Odd(Exception): pass\nraise Odd('odd')", "Odd: odd"),
        ("def (", "SyntaxError: "),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_package_whose_import_raises_is_one_warning(
    tmp_path: Path, before: str, cause: str
) -> None:
    error = compute(tmp_path, "", before=before)
    assert f"of the package fake-backend cannot be used: {cause}" in error
    assert error.count("cannot be used") == 1
    assert "Traceback" not in error


def test_a_package_that_returns_no_path_is_a_warning(tmp_path: Path) -> None:
    assert "cannot be used: TypeError: " in compute(tmp_path, None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
def test_a_cut_library_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "libpyggml-fake.so"
    path.write_bytes(next(LIBRARIES.glob("libpyggml-base.*")).read_bytes()[:5000])
    assert "is cut; install the package again" in compute(tmp_path, path)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's message")
def test_a_file_that_is_no_library_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "libpyggml-fake.so"
    path.write_text("text that is long enough to be read as the header of an ELF file " * 2)
    error = compute(tmp_path, path)
    assert f"cannot be used: {path}: invalid ELF header; install the package again\n" in error
    assert "driver" not in error


@pytest.mark.parametrize("text", [b"[console_scripts]\nno equals sign\n", b"[a]\nb = \xff:c\n"])
def test_entry_points_that_cannot_be_read_are_a_warning(tmp_path: Path, text: bytes) -> None:
    """Those of another package, which does not keep this one from being loaded."""
    info = tmp_path / "damaged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: damaged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(text)
    error = compute(tmp_path, tmp_path / "libpyggml-fake.so")
    assert "the entry points of the package damaged cannot be read: " in error
    assert "libpyggml-fake.so is missing; install the package again" in error
    assert error.count("\n") == 2


@pytest.mark.parametrize("name", ["entry_points", "distributions"])
def test_memory_that_ends_is_no_fault_of_a_package(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fails(**_: str) -> None:
        raise MemoryError

    if name == "distributions":
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: 1 // 0)
        fake = SimpleNamespace(entry_points=SimpleNamespace(select=fails))
        monkeypatch.setattr(importlib.metadata, name, lambda: [fake])
    else:
        monkeypatch.setattr(importlib.metadata, name, fails)
    with pytest.raises(MemoryError):
        load_backends()


def test_a_library_of_another_build_is_a_warning(tmp_path: Path) -> None:
    library = next(LIBRARIES.glob("*pyggml-base.*"))
    assert "another build; install the version of pyggml" in compute(tmp_path, library)


@pytest.mark.skipif(sys.platform != "linux", reason="builds a library for Linux")
@pytest.mark.skipif(not COMPILER, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("missing", "cure"),
    [
        ("libcuda.so.1", "install the GPU driver"),
        ("libvulkan.so.1", "install the GPU driver"),
        ("libcublas.so.13", "install the packages that it requires"),
    ],
)
def test_a_library_whose_neighbour_is_missing_is_a_warning(
    tmp_path: Path, missing: str, cure: str
) -> None:
    # A name that no system has: a driver may be installed here.
    missing = missing.replace(".so.", "-absent.so.")
    options = ("-shared", "-fPIC", "-x", "c", "/dev/null")
    subprocess.run(
        [COMPILER, *options, f"-Wl,-soname,{missing}", "-o", missing], cwd=tmp_path, check=True
    )
    library = tmp_path / "libpyggml-fake.so"
    link = ("-Wl,--no-as-needed", "-x", "none", missing, "-o", str(library))
    subprocess.run([COMPILER, *options, *link], cwd=tmp_path, check=True)
    (tmp_path / missing).unlink()
    error = compute(tmp_path, library)
    assert f"cannot be used: {missing}: " in error
    assert error.endswith(f"; {cure}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="builds a library for Linux")
@pytest.mark.skipif(not COMPILER, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("result", "cause"),
    [("&reg", "it finds no device"), ("NULL", "it does not start; install the GPU driver")],
)
def test_no_device_and_no_driver_are_a_warning(tmp_path: Path, result: str, cause: str) -> None:
    """The library belongs to this build and is loaded; ggml knows no more devices than before."""
    if not GGML.is_dir():
        pytest.skip("needs ggml's source")
    own = next(LIBRARIES.glob("libpyggml-cpu*")).read_bytes()
    build = re.search(rb"(?<![0-9a-f])([0-9a-f]{64})\0", own)
    assert build is not None
    source, library = tmp_path / "fake.c", tmp_path / "libpyggml-fake.so"
    code = SOURCE.replace("BUILD", build[1].decode()).replace("return &reg", f"return {result}")
    source.write_text(code)
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", f"-I{GGML / 'include'}", f"-I{GGML / 'src'}",
         str(source), str(LIBRARIES / "libpyggml-base.so"), "-o", str(library)], check=True,
    )  # fmt: skip
    error = compute(tmp_path, library)
    assert error.endswith(f"cannot be used: {cause} (no GPU answers)\n")
    assert error.count("\n") == 1
