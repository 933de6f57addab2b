# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from pyggml.models import build

# Runs before anything else: sends a signal as soon as a certain module is imported.
HOOK = """
import os, signal, sys

class Send:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT"] and sys.meta_path[0] is self:
            del sys.meta_path[0]
            signal.raise_signal(int(os.environ["SIGNUM"]))

sys.meta_path.insert(0, Send())
"""
# The same for the first file that is flushed to the disk, thus half of a write.
WRITE_HOOK = """
import os, signal

flush = os.fsync

def send(file):
    os.fsync = flush
    signal.raise_signal(int(os.environ["SIGNUM"]))
    flush(file)

os.fsync = send
"""
# A process that was forked from a command sleeps until a signal ends it.
FORKED = """
import os, signal, sys, time
from pyggml.cli.stops import stoppable

with stoppable():
    sleeps, says = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(says, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(sleeps, 1)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM]
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # no nohup
    SIGNALS.append(signal.SIGHUP)


def environment(folder, signum, **more):
    path = f"{folder}{os.pathsep}{os.getcwd()}"
    return {**os.environ, "PYTHONPATH": path, "SIGNUM": str(int(signum)), **more}


@pytest.mark.parametrize("module", ["pyggml", "pyggml.cli"])
def test_the_package_is_a_program(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pyggml ")
    assert done.stderr == ""


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("at", ["typer", "pyggml.recipes"])
def test_a_signal_while_the_commands_are_imported(tmp_path, at, signum):
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    done = subprocess.run(
        [sys.executable, "-m", "pyggml", "report", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(tmp_path, signum, AT=at),
    )
    assert (done.returncode, done.stderr) == (128 + signum, "interrupted\n")


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_while_a_file_is_written(tmp_path, signum):
    (tmp_path / "sitecustomize.py").write_text(WRITE_HOOK)
    sizes = {"vocab_size": 16, "n_layer": 1, "n_head": 2, "n_embd": 32, "context": 8}
    build("gpt2", sizes).save(tmp_path / "a.gguf")
    before = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "pyggml", "quantize", "a.gguf", "b.gguf", "--type=F16"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment(tmp_path, signum),
    )
    assert (done.returncode, done.stderr) == (128 + signum, "interrupted\n")
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "__pycache__"] == before


def test_importing_installs_no_signal_handler():
    code = (
        "import signal, pyggml, pyggml.recipes\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_a_command_forks_ends_at_a_signal():
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_signal_ends_at_once():
    code = (
        "import signal\n"
        "from pyggml.cli.stops import stoppable\n"
        "with stoppable():\n"
        "    try:\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "    except KeyboardInterrupt:\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
