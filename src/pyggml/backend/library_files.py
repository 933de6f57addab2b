# SPDX-License-Identifier: MIT
"""Find and check the compiled modules and ggml's libraries before the system loads them."""

from __future__ import annotations

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["check_module", "cpu_library", "cure", "is_cut", "libraries", "not_imported"]

PACKAGE = __package__.partition(".")[0]


def cure() -> str:
    """Return how to mend the install, by what is known of it.

    Example:
        >>> "install" in cure()
        True
    """
    here = Path(__file__)
    if not here.exists():
        return "the system loads libraries from files: install the package unzipped"
    if (here.parents[3] / "build_ffi.py").exists() or _from_folder():
        again = "`pip install .`, or `just build` after a change of patches/"
        return f"in the project's folder run {again}"
    return f"run `pip uninstall {PACKAGE}`, then `pip install {PACKAGE}`"


def _from_folder() -> bool:
    """Return True where pip installed from a folder, whose build it copied."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return '"dir_info"' in (distribution(PACKAGE).read_text("direct_url.json") or "")
    except (PackageNotFoundError, OSError, ValueError):
        return False


def check_module(name: str) -> None:
    """Raise on a compiled module that cannot be imported without harm.

    Args:
        name: its name in the package, such as "_ggml".

    Raises:
        ImportError: its file is incomplete or cannot be read.

    Example:
        >>> check_module("_ggml")
    """
    path = None if f"{PACKAGE}.{name}" in sys.modules else _module_file(name)
    if path:
        _check(path, "compiled module")


def not_imported(error: ImportError) -> ImportError:
    """Return the error for a compiled module whose import raised.

    Example:
        >>> print(not_imported(ImportError("file too short")))
        pyggml: the compiled module cannot be imported (file too short); ...
    """
    said = f"pyggml: the compiled module cannot be imported ({error})"
    if "failed to map segment" in str(error) or "annot allocate memory" in str(error):
        return ImportError(
            f"{said}: memory is short; raise the limit of the process (ulimit -v), or close other"
            " programs"
        )
    return ImportError(f"{said}; {cure()}")


def libraries() -> Path:
    """Return the folder of ggml's libraries, after a check of all but the variants of the CPU's.

    It is beside the compiled module: an editable install has the sources in another folder.

    Raises:
        ImportError: a library is incomplete or cannot be read.

    Example:
        >>> libraries().name
        'lib'
    """
    module = _module_file("_ggml")
    folder = (module or Path(__file__).parent).parent / "lib"
    for path in sorted(folder.glob("*pyggml*")):
        if "pyggml-cpu-" not in path.name:
            _check(path, "library")
    return folder


def cpu_library(folder: Path, variant: str) -> Path:
    """Return the file of a variant of the CPU's library.

    Args:
        folder: where ggml's libraries are.
        variant: its name, such as "haswell"; "" means the one of a build without variants.

    Raises:
        ImportError: there is none, or it is incomplete or cannot be read.

    Example:
        >>> cpu_library(Path("nowhere"), "haswell")
        Traceback (most recent call last):
            ...
        ImportError: pyggml: the library of the CPU variant haswell must be in nowhere; ...
    """
    name = f"pyggml-cpu-{variant}" if variant else "pyggml-cpu"
    found = [path for path in folder.glob("*pyggml-cpu*") if path.stem.removeprefix("lib") == name]
    if not found:
        which = f"CPU variant {variant}" if variant else "CPU"
        raise ImportError(
            f"pyggml: the library of the {which} must be in {folder}; got none; {cure()}"
        )
    _check(found[0], "library")
    return found[0]


def _module_file(name: str) -> Path | None:
    """Return the file of a compiled module; None where there is none."""
    spec = find_spec(f"{PACKAGE}.{name}")
    return Path(spec.origin) if spec and spec.origin else None


def _check(path: Path, what: str) -> None:
    """Raise on an incomplete file: to read what it lacks would end the process (SIGBUS)."""
    try:
        cut = is_cut(path)
    except OSError as error:
        raise ImportError(
            f"pyggml: the {what} must be a file that can be read; got {path}: {error.strerror};"
            f" {cure()}"
        ) from None
    if cut:
        raise ImportError(f"pyggml: the {what} must be complete; got a part of {path}; {cure()}")


def is_cut(path: Path) -> bool:
    """Return True for an ELF file of 64 bits without the end of its table of sections.

    The file ends before, or has zeros there, as after a loss of power.

    Args:
        path: a library's file.

    Example:
        >>> is_cut(next(libraries().glob("*pyggml-base*")))
        False
    """
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:5] != b"\x7fELF\x02":
            return False  # the loader's own message tells
        order = "<" if head[5] == 1 else ">"
        (start,) = struct.unpack_from(f"{order}Q", head, 40)
        size, count = struct.unpack_from(f"{order}HH", head, 58)
        if not count:
            return False
        end = int(start) + int(size) * int(count)
        if path.stat().st_size < end:
            return True
        file.seek(end - size)
        return not any(file.read(size))
