# SPDX-License-Identifier: MIT
from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["pyggml", "pyggml.cli"])
def test_the_package_is_a_program(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pyggml ")
    assert done.stderr == ""
