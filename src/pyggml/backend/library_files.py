# SPDX-License-Identifier: MIT
"""Find and check the files of ggml's libraries before the system loads them."""

from __future__ import annotations

import struct
from importlib.util import find_spec
from pathlib import Path

__all__ = ["CURE", "cpu_library", "is_cut", "libraries"]

CURE = "run `pip uninstall pyggml`, and install it again"


def libraries() -> Path:
    """Return the folder of ggml's libraries.

    It is beside the compiled module: an editable install has the sources in another folder.

    Raises:
        ImportError: a library is incomplete; a part that the file lacks would end the process
            (SIGBUS) when it is read.

    Example:
        >>> libraries().name
        'lib'
    """
    spec = find_spec(".._ggml", __package__)
    package = Path(spec.origin).parent if spec and spec.origin else Path(__file__).parent.parent
    folder = package / "lib"
    for path in sorted(folder.glob("*pyggml*")):
        if is_cut(path):
            raise ImportError(f"pyggml: the library must be complete; got a part of {path}; {CURE}")
    return folder


def cpu_library(folder: Path, variant: str) -> Path:
    """Return the file of a variant of the CPU's library.

    Args:
        folder: where ggml's libraries are.
        variant: its name, such as "haswell".

    Raises:
        ImportError: there is none.

    Example:
        >>> cpu_library(Path("nowhere"), "haswell")
        Traceback (most recent call last):
            ...
        ImportError: pyggml: the library of the CPU variant haswell must be in nowhere; ...
    """
    name = f"pyggml-cpu-{variant}"
    found = [path for path in folder.glob("*pyggml-cpu-*") if path.stem.removeprefix("lib") == name]
    if not found:
        raise ImportError(
            f"pyggml: the library of the CPU variant {variant} must be in {folder}; got none;"
            f" {CURE}"
        )
    return found[0]


def is_cut(path: Path) -> bool:
    """Return True for an ELF file of 64 bits that ends before its table of sections does.

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
    return path.stat().st_size < int(start) + int(size) * int(count)
