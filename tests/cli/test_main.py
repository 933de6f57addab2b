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


@pytest.mark.parametrize("way", ["module", "script"])
@pytest.mark.parametrize(
    "at",
    [
        "numpy",
        "pyggml._ggml",
        "pyggml.tensors.tensor",
        "typer",
        "pyggml.cli.app",
        "pyggml.train.loop",
    ],
)
def test_ctrl_c_while_it_starts(tmp_path, at, way):
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    program = tmp_path / "bin" / "pyggml"
    program.parent.mkdir()
    program.write_text("from pyggml.cli import main\nmain()\n")
    start = ["-m", "pyggml"] if way == "module" else [str(program)]
    done = subprocess.run(
        [sys.executable, *start, "report", "--artifact-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}", "AT": at},
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("program", ["-c", "pyggml_tool.py"])
def test_the_programs_of_others_keep_their_handlers(tmp_path, program):
    code = (
        "import signal, pyggml\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    (tmp_path / program).write_text(code)
    start = ["-c", code] if program == "-c" else [str(tmp_path / program)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    assert subprocess.run([sys.executable, *start], check=False, env=environment).returncode == 0
