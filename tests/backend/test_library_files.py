# SPDX-License-Identifier: MIT
"""The libraries' files: found beside the compiled module, complete, of this build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import pyggml as pg
from pyggml.backend import library, library_files

PACKAGE = Path(pg.__file__).parent
LIBRARIES = library_files.libraries()
tables = pytest.mark.skipif(
    not hasattr(pg.lib, "pyggml_load_cpu"), reason="the build is older than the table of functions"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty lib/ beside the compiled module."""
    spec = SimpleNamespace(origin=str(tmp_path / "_ggml.abi3.so"))
    monkeypatch.setattr(library_files, "find_spec", lambda *_: spec)
    (tmp_path / "lib").mkdir()
    return tmp_path / "lib"


def test_a_module_for_which_memory_is_short() -> None:
    """Another install would not cure it."""
    said = str(library_files.not_imported(ImportError("x.so: failed to map segment")))
    assert said.endswith(
        "memory is short; raise the limit of the process (ulimit -v), or close other programs"
    )
    assert "pip install" not in said


def package_in(folder: Path) -> Path:
    """Return a copy of the package with its modules and libraries."""
    copy = folder / "pyggml"
    ignore = shutil.ignore_patterns("__pycache__", "demos", "*.so")
    shutil.copytree(PACKAGE, copy, ignore=ignore)  # an editable install has the modules elsewhere
    shutil.copytree(LIBRARIES.parent, copy, ignore=shutil.ignore_patterns("*.py"),
                    dirs_exist_ok=True)  # fmt: skip
    return copy


def last_line_of_import(folder: Path) -> str:
    """Import the package of a folder, which must raise; return the last line of stderr."""
    site = [str(folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {site}; import pyggml"],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


@linux
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kept", [0.99, 0.5, 0.01])
def test_a_cut_library_is_an_import_error(elsewhere: Path, kept: float, zeros: bool) -> None:
    """The system would load it, and a signal would end the process."""
    data = next(LIBRARIES.glob("libpyggml-base.*")).read_bytes()
    path = elsewhere / "libpyggml-base.so"
    path.write_bytes(data)
    assert library_files.libraries() == elsewhere
    data = data[: int(len(data) * kept)] + bytes(len(data) - int(len(data) * kept)) * zeros
    path.write_bytes(data)
    with pytest.raises(ImportError, match=r"got a part of .*base\.so"):
        library_files.libraries()


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize("kind", ["a folder", "a link to nothing"])
def test_what_is_no_file_is_an_import_error(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: bool
) -> None:
    path = elsewhere.parent / "_ggml.abi3.so" if module else elsewhere / "libpyggml-base.so"
    if kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("nothing")
    monkeypatch.delitem(sys.modules, "pyggml._ggml")
    with pytest.raises(ImportError, match=rf"must be a file .* got .*{path.name}: .* run `"):
        library_files.check_module("_ggml") if module else library_files.libraries()


@linux
def test_only_the_variant_that_is_loaded_must_be_complete(elsewhere: Path) -> None:
    cut = next(LIBRARIES.glob("libpyggml-base.*")).read_bytes()[:5000]
    (elsewhere / "libpyggml-cpu-haswell.so").write_bytes(cut)
    (elsewhere / "libpyggml-cpu-x64.so").symlink_to("nothing")
    assert library_files.libraries() == elsewhere
    with pytest.raises(ImportError, match=r"got a part of .*haswell\.so"):
        library_files.cpu_library(elsewhere, "haswell")
    with pytest.raises(ImportError, match=r"must be a file .*x64\.so: No such file"):
        library_files.cpu_library(elsewhere, "x64")


@linux
@pytest.mark.parametrize("kept", [8192, -4096, 0, None])
@pytest.mark.parametrize("name", ["_cpu", "_ggml"])
def test_a_damaged_module_is_an_import_error(tmp_path: Path, name: str, kept: int | None) -> None:
    """Not a signal, nor an error of a later import."""
    path = next(package_in(tmp_path).glob(f"{name}.*so"))
    data = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(data[:kept])
    last = last_line_of_import(tmp_path)
    assert last.startswith("ImportError: pyggml: the compiled module ")
    cause = "got a part of" if kept else "file too short" if kept == 0 else name
    assert cause in last
    assert "install" in last.rpartition(";")[2]


@pytest.mark.parametrize(
    ("place", "url", "expected"),
    [
        ("site-packages/pyggml", "", "`pip uninstall pyggml`"),
        ("site-packages/pyggml", '{"archive_info": {}, "url": "x"}', "`pip uninstall pyggml`"),
        ("site-packages/pyggml", '{"dir_info": {}, "url": "x"}', "`pip install .`"),
        ("src/pyggml", "", "`pip install .`"),
        ("nowhere", "", "unzipped"),
    ],
)
def test_the_cure_fits_the_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, url: str, expected: str
) -> None:
    path = tmp_path / place / "backend" / "library_files.py"
    if place != "nowhere":
        path.parent.mkdir(parents=True)
        path.touch()
    if place.startswith("src"):
        (tmp_path / "build_ffi.py").touch()
    monkeypatch.setattr(library_files, "__file__", str(path))
    dist = SimpleNamespace(read_text=lambda _: url or None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: dist)
    assert expected in library_files.cure()


def test_an_install_without_metadata_has_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_files, "PACKAGE", "pyggml-not-installed")
    assert "install" in library_files.cure()


def test_a_module_that_is_imported_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyggml._other", ModuleType("pyggml._other"))
    library_files.check_module("_other")


def test_a_variant_without_a_library_is_an_import_error(elsewhere: Path) -> None:
    (elsewhere / "libpyggml-cpu-armv8.2_2.so").touch()
    assert library_files.cpu_library(elsewhere, "armv8.2_2").name == "libpyggml-cpu-armv8.2_2.so"
    with pytest.raises(ImportError, match=r"variant armv8 must be in .*; got none"):
        library_files.cpu_library(elsewhere, "armv8")
    # As a module of a build for one CPU asks, among the libraries of a build with variants.
    with pytest.raises(ImportError, match=r"library of the CPU must be in .*; got none"):
        library_files.cpu_library(elsewhere, "")


@tables
@linux
def test_a_library_must_be_of_this_build(tmp_path: Path) -> None:
    """One of another build, or none at all, changes nothing of what is loaded."""

    def load(path: Path) -> str | None:
        reason = pg.lib.pyggml_load_cpu(os.fsencode(path))
        return None if reason == pg.ffi.NULL else pg.ffi.string(reason).decode()

    text = tmp_path / "libpyggml-cpu-x64.so"
    text.write_bytes(b"not a library, but long enough to be read as the header of an ELF file.....")
    assert "invalid ELF header" in (load(text) or "")
    assert load(LIBRARIES / "libpyggml-base.so") == "it belongs to another build"
    assert pg.lib.ggml_cpu_has_llamafile() in (0, 1)
    own = next(LIBRARIES.glob("libpyggml-cpu*"))
    if own.name == "libpyggml-cpu.so":  # not a variant, which the CPU may lack
        assert load(own) is None
        assert pg.lib.ggml_cpu_has_llamafile() in (0, 1)


def test_a_module_of_an_older_version_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "lib", SimpleNamespace())
    with pytest.raises(ImportError, match=r"module cannot be imported \(.*other_build.* run `"):
        library._check_build()


@linux
@pytest.mark.parametrize("name", ["pyggml-base", "pyggml"])
def test_the_libraries_of_the_module_must_be_of_its_build(tmp_path: Path, name: str) -> None:
    """Such a library has all functions, and would compute otherwise than this build's."""
    path = package_in(tmp_path) / "lib" / f"lib{name}.so"
    data = path.read_bytes()
    (build,) = set(re.findall(rb"(?<![0-9a-f])([0-9a-f]{64})\0", data))
    path.write_bytes(data.replace(build, build[::-1]))
    last = last_line_of_import(tmp_path)
    assert last.startswith("ImportError: pyggml: ggml's libraries must be of the compiled module's")
    assert f" build's {name} in {path.parent}; " in last
    assert "install" in last.rpartition(";")[2]


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A library that has functions of ggml's names."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "ggml.c").write_text("void * ggml_init(void) { return 0; }\n")
    path = tmp_path / "libggml-base.so"
    command = [compiler, "-shared", "-fPIC", str(tmp_path / "ggml.c"), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@linux
@pytest.mark.parametrize("way", ["LD_PRELOAD", "RTLD_GLOBAL"])
def test_another_ggml_in_the_global_scope_is_an_import_error(stranger: Path, way: str) -> None:
    """pyggml would call its functions."""
    load = f"import ctypes; ctypes.CDLL({str(stranger)!r}, ctypes.{{}}); import pyggml"
    code = load.format(way) if way == "RTLD_GLOBAL" else "import pyggml"
    more = {"LD_PRELOAD": str(stranger)} if way == "LD_PRELOAD" else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **more},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: pyggml: ggml's functions must be those of {LIBRARIES}; ")
    assert f"got those of {stranger}, " in last
    assert "import pyggml first" in last
    # Of a library without RTLD_GLOBAL nothing is called.
    code = load.format("RTLD_LOCAL") + "; print(pyggml.ones(2).numpy().sum())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "2.0"


@linux
def test_no_library_is_opened_beside_another_ggml_in_the_global_scope(stranger: Path) -> None:
    """A GPU package's, after the import: it would call the other's functions."""
    code = f"""
import ctypes, os, pyggml
from pyggml.backend.library_files import libraries
ctypes.CDLL({str(stranger)!r}, ctypes.RTLD_GLOBAL)
path = os.fsencode(next(libraries().glob("libpyggml-cpu*")))
print(pyggml.ffi.string(pyggml.lib.pyggml_load_backend(path)).decode())
print(pyggml.ones(2).numpy().sum())
"""
    lines = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert lines == ["another ggml is in the global scope of symbols", "2.0"]


@tables
@linux
def test_libraries_of_our_names_elsewhere_are_not_loaded(tmp_path: Path) -> None:
    for path in LIBRARIES.iterdir():
        (tmp_path / path.name).write_text("not a library")
    done = subprocess.run(
        [sys.executable, "-c", "import pyggml; print(pyggml.ggml_version())"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == pg.ggml_version(), done.stderr


def test_a_zipped_package_is_an_import_error(tmp_path: Path) -> None:
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in PACKAGE.rglob("*.py"):
            file.write(path, Path("pyggml") / path.relative_to(PACKAGE))
    # -S: the finder of an editable install would come before the archive.
    path = [str(archive), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path}; import pyggml"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "ImportError: pyggml: the compiled module cannot be imported" in done.stderr
    assert "install the package unzipped" in done.stderr
