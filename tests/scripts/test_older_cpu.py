# SPDX-License-Identifier: MIT
"""scripts/older_cpu.py: the kernels of CPUs without AVX-512."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "older_cpu.py"

pytestmark = [
    pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/ is not here"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="no x86-64"),
]


def test_other_kinds_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "avx1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "invalid choice: 'avx1'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="builds as Linux does")
@pytest.mark.parametrize("kind", ["avx2", "plain"])
def test_kernels_of_older_cpus(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, kind], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert done.stdout.count("exit 0, ") == 4
    assert "objdump is not here" not in done.stdout
