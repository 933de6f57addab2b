# SPDX-License-Identifier: MIT
"""The binding names everything public in ggml's headers, read here in another way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyggml import ffi, lib

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "vendor" / "ggml" / "include"
HEADERS = ["ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "ggml-opt.h", "gguf.h"]

pytestmark = pytest.mark.skipif(not INCLUDE.is_dir(), reason="vendor/ggml is not here")


def bare(header: str) -> str:
    """The header without comments."""
    text = (INCLUDE / header).read_text(encoding="utf-8")
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def undefined() -> dict[str, str]:
    """What the headers declare and ggml nowhere defines."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import gen_cdef
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return dict(gen_cdef.UNDEFINED)


def exported() -> set[str]:
    """The functions that the built libraries export, as nm tells."""
    folder = Path(sys.modules["pyggml._ggml"].__file__ or "").parent / "lib"
    libraries = sorted(folder.glob("*.so"))
    if not libraries or not shutil.which("nm"):
        pytest.skip("nm or the libraries are not here")
    text = subprocess.check_output(["nm", "-D", "--defined-only", *map(str, libraries)], text=True)
    return set(re.findall(r" T (gg(?:ml|uf)_\w+)", text))


def declared(header: str) -> set[str]:
    """Functions with an API mark."""
    text = re.sub(r"^\s*#.*$", "", bare(header), flags=re.MULTILINE)
    return set(re.findall(r"\bGGML_(?:BACKEND_)?API\b[^;(]*?\b(gg\w+)\s*\(", text))


@pytest.mark.parametrize("header", HEADERS)
def test_every_function(header: str) -> None:
    names = declared(header)
    assert len(names) > 8
    assert names - set(dir(lib)) - undefined().keys() == set()


@pytest.mark.parametrize("header", HEADERS)
def test_every_enum(header: str) -> None:
    for name, body in re.findall(r"\benum\s+(\w+)\s*\{([^}]*)\}", bare(header)):
        items = re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"=[^,]*", "", body))
        assert items, name
        assert set(items) - set(dir(lib)) == set(), name
        bound = ffi.typeof(f"enum {name}").relements
        assert bound.keys() == set(items), name


@pytest.mark.parametrize("header", HEADERS)
def test_every_struct_with_its_fields(header: str) -> None:
    for name, body in re.findall(r"\bstruct\s+(\w+)\s*\{(.*?)\n\s*\};", bare(header), re.DOTALL):
        kind = ffi.typeof(f"struct {name}")
        for field, _ in kind.fields:
            assert re.search(rf"\b{field}\b", body), f"{name}.{field}"
        semicolons = re.sub(r"\{[^}]*\}", "", body).count(";")
        assert len(kind.fields) == semicolons, name


@pytest.mark.parametrize("header", HEADERS)
def test_every_constant(header: str) -> None:
    pattern = r'^\s*#\s*define\s+(GG(?:ML|UF)_\w+)[ \t]+(\(?-?(?:0x)?[0-9a-f]+\)?|".*?")\s*$'
    for name, value in re.findall(pattern, bare(header), re.MULTILINE):
        if name == "GGML_MEM_ALIGN":  # differs by platform
            assert lib.GGML_MEM_ALIGN in (4, 8, 16)
        elif value.startswith('"'):
            assert ffi.string(getattr(lib, name)).decode() == value.strip('"')
        else:
            assert getattr(lib, name) == int(value.strip("()"), 0), name


def test_exports_that_headers_name() -> None:
    words = set(re.findall(r"\w+", " ".join(map(bare, HEADERS))))
    public = exported() & words
    assert len(public) > 500
    assert public - set(dir(lib)) == set()


def test_undefined_ones_are_undefined() -> None:
    every = set().union(*map(declared, HEADERS))
    assert undefined().keys() <= every
    assert undefined().keys() & exported() == set()


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not here")
def test_committed_file_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "gen_cdef.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
