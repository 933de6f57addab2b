# SPDX-License-Identifier: MIT
"""Programs run by `mpiexec`, for tests; skipped where there is no MPI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ALLOWED = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMP_NUM_THREADS": "1",
}


def command(ranks: int, *arguments: str | Path) -> list[str]:
    """Return the command that runs Python with arguments on so many ranks; skip without MPI."""
    mpiexec = shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
    if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install 'pyggml[mpi]'")
    return [mpiexec, "-n", str(ranks), sys.executable, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """Return the variables that let MPI run anywhere, as root and with more ranks than cores."""
    return {**os.environ, **_ALLOWED, **more}


def run(ranks: int, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments on so many ranks, and return what it printed."""
    return subprocess.run(
        command(ranks, *arguments),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        env=environment(**more),
        check=False,
    )


def run_code(ranks: int, path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program on so many ranks."""
    program = path / "program.py"
    program.write_text(code)
    return run(ranks, program)
