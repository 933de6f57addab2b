# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Runs before anything else: sends Ctrl-C as soon as a certain module is imported.
HOOK = """
import os, signal, sys

class Send:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT"] and sys.meta_path[0] is self:
            del sys.meta_path[0]
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Send())
"""


@pytest.mark.parametrize("module", ["pyggml", "pyggml.cli"])
def test_the_package_is_a_program(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pyggml ")
    assert done.stderr == ""


@pytest.mark.parametrize("at", ["typer", "pyggml.recipes"])
def test_ctrl_c_while_the_commands_are_imported(tmp_path, at):
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    done = subprocess.run(
        [sys.executable, "-m", "pyggml", "report", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}", "AT": at},
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_importing_installs_no_signal_handler():
    code = (
        "import signal, pyggml, pyggml.recipes\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
