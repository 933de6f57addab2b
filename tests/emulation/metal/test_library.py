# SPDX-License-Identifier: MIT
"""What CMake compiles into default.metallib, where the kernels are not embedded as source.

Apple's compiler is not here: a program in its place writes down how it is called.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .build import ggml_tree

METAL = ggml_tree() / "src" / "ggml-metal"

pytestmark = pytest.mark.skipif(
    sys.platform == "win32"
    or not METAL.is_dir()
    or not all(shutil.which(x) for x in ("cmake", "make")),
    reason="no vendored tree, or no cmake and make",
)

PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(library NONE)
function(ggml_add_backend_library name)
    add_library(${name} INTERFACE)
endfunction()
function(target_link_libraries)
endfunction()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_INSTALL_BINDIR bin)
set(GGML_METAL_TARGET_OS macos)
add_subdirectory(%s metal)
"""

XCRUN = """#!/bin/sh
case "$*" in
    *--show-sdk-version*) echo "$SDK";;
    *) echo "$*" >> "%s"; for last; do :; done; : > "$last";;
esac
"""


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch, sdk: str, *options: str) -> list[str]:
    """How the compiler was called for each kernel file."""
    log, tools, source = folder / "log", folder / "tools", folder / "source"
    tools.mkdir()
    source.mkdir()
    (tools / "xcrun").write_text(XCRUN % log)
    (tools / "xcrun").chmod(0o755)
    (source / "CMakeLists.txt").write_text(PROJECT % METAL.as_posix())
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setenv("SDK", sdk)
    libraries = [f"-D{name}=x" for name in ("FOUNDATION_LIBRARY", "METAL_FRAMEWORK")]
    configure = ["cmake", "-G", "Unix Makefiles", "-S", source, "-B", folder / "build", *options]
    steps = (
        [*configure, *libraries, "-DMETALKIT_FRAMEWORK=x", "-DGGML_METAL_EMBED_LIBRARY=OFF"],
        ["cmake", "--build", folder / "build", "--target", "ggml-metal-lib"],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line for line in log.read_text().splitlines() if " -c " in line]


@pytest.mark.parametrize(
    ("sdk", "options", "has_bf16"),
    [
        ("15.2", (), True),
        ("15.2", ("-DGGML_METAL_STD=metal3.2",), True),
        ("26.0", (), True),
        ("13.3", (), False),
        ("15.2", ("-DGGML_METAL_STD=metal3.0",), False),
        ("15.2", ("-DGGML_METAL_MACOSX_VERSION_MIN=13.0",), False),
    ],
)
def test_kernels_of_bf16_are_compiled(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sdk: str,
    options: tuple[str, ...],
    has_bf16: bool,
) -> None:
    """Whether the macro is defined that they stand behind, wherever the language has the type."""
    calls = compiled(tmp_path, monkeypatch, sdk, *options)
    names = {Path(word).stem for call in calls for word in call.split() if word.endswith(".metal")}
    assert names >= {path.stem for path in (METAL / "kernels").glob("*_back.metal")}
    assert [call for call in calls if ("-DGGML_METAL_HAS_BF16" in call) != has_bf16] == []


def test_a_library_without_them_is_asked_for_none() -> None:
    """The device's own code, which no compiler here reads, looks for a kernel of bf16."""
    text = (METAL / "ggml-metal-device.m").read_text()
    found = re.search(
        r'functionNames\] containsObject:@"(\w+)"\]\) \{(.*?)\n        \}', text, re.S
    )
    assert found
    assert "ggml_metal_device_disable_bfloat(dev);" in found.group(2)
    kernels = "".join(path.read_text() for path in (METAL / "kernels").glob("*.metal"))
    assert f'[[host_name("{found.group(1)}")]]' in kernels
