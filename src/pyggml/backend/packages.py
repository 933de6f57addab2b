# SPDX-License-Identifier: MIT
"""Load the GPU backends of packages that are installed beside pyggml.

Such a package holds a library of a ggml backend, built from the same ggml. Its entry point in the
group `pyggml.backends` is a function that returns the path of the library.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .library import ffi, lib
from .library_files import is_cut

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint, EntryPoints

__all__ = ["GROUP", "load_backends"]

GROUP = "pyggml.backends"

_logger = logging.getLogger("pyggml")
_ggml = logging.getLogger("pyggml.ggml")


def load_backends() -> None:
    """Load the backend of each package; log a warning where one has no device or cannot be used.

    A package that raises, whatever it raises, is such a warning.

    Example:
        >>> load_backends()
    """
    for point in sorted(_points()):
        held: list[logging.LogRecord] = []
        hold = held.append  # as a filter it lets nothing pass
        _ggml.addFilter(hold)  # type: ignore[arg-type]
        try:
            reason = _load(point)
        finally:
            _ggml.removeFilter(hold)  # type: ignore[arg-type]
        for record in held:
            if reason and record.levelno >= logging.ERROR:
                reason += f" ({record.getMessage()})"
            else:
                _ggml.handle(record)
        if reason:
            _logger.warning(
                "pyggml: the backend %s of the package %s cannot be used: %s",
                point.name,
                point.dist.name if point.dist else point.module,
                reason,
            )


def _points() -> list[EntryPoint]:
    """Return the entry points of the group; log a warning where a package's cannot be read."""
    from importlib.metadata import distributions, entry_points

    try:
        return list(entry_points(group=GROUP))
    except MemoryError:  # no file's fault
        raise
    except Exception:  # noqa: BLE001 - a file of any package may be damaged: ask each by itself
        found: dict[str, EntryPoints] = {}
    for dist in distributions():
        try:
            points = dist.entry_points.select(group=GROUP)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001
            _logger.warning(
                "pyggml: the entry points of the package %s cannot be read: %s; install it again",
                _name(dist),
                f"{type(error).__name__}: {error}",
            )
        else:  # the first of a name is the one that Python imports
            found.setdefault(_name(dist), points)
    return [point for points in found.values() for point in points]


def _name(dist: Distribution) -> str:
    """The name of a package, whose metadata may be damaged too."""
    try:
        return str(dist.name)
    except Exception:  # noqa: BLE001
        return "without a name"


def _load(point: EntryPoint) -> str:
    """Load one; returns why it cannot be used, or ""."""
    before = lib.ggml_backend_dev_count()
    try:
        path = Path(point.load()())
        if not path.is_file():
            return f"the file {path} is missing; install the package again"
        if is_cut(path):
            return f"the file {path} is cut; install the package again"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - another package may raise anything
        return f"{type(error).__name__}: {error}; install the package again"
    failure = lib.pyggml_load_backend(os.fsencode(path))
    if failure != ffi.NULL:
        reason = str(ffi.string(failure).decode("utf-8", "replace"))
        if "another build" in reason:
            return f"{reason}; install the version of pyggml that it requires"
        if reason.startswith(("libcublas", "libcudart")):  # of NVIDIA's packages, not of the driver
            return f"{reason}; install the packages that it requires"
        if reason.startswith(f"{path}: ") and "undefined symbol" not in reason:
            return f"{reason}; install the package again"  # it is no library, or of another CPU
        return f"{reason}; install the GPU driver"
    return "" if lib.ggml_backend_dev_count() > before else "it finds no device"
