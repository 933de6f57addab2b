# SPDX-License-Identifier: MIT
"""Commands whose stdin, stdout or stderr is closed, full, or goes away."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pyggml.cli.errors import explain
from pyggml.cli.launch import _run
from pyggml.cli.terminal import settle
from pyggml.debug.bars import PlainBar
from pyggml.debug.lasting import LastingStream
from pyggml.train.checkpoints import list_checkpoints

from .conftest import command, options

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a shell, and terminals")
FULL = Path("/dev/full")


def shell(redirections, *args, shell_words="", timeout=900):
    """Run a command with redirections of a shell: (status, stdout, stderr)."""
    line = f'"$@" {redirections}{shell_words}'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "bash", *command(*args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def run_of(folder, text_file, **changes):
    """A small training."""
    given = {"steps": 6, "save_every": 3, "sample_tokens": 0, **changes}
    return ["train-llm", "--text", text_file, "--artifact-dir", folder, *options(**given)]


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_streams(trained, closed, tmp_path, text_file):
    model = trained[0] / "model.gguf"
    for words in (
        ["inspect", model],
        ["devices"],
        ["generate", "--model", model, "--max-tokens", 2],
        run_of(tmp_path / "run", text_file),
    ):
        code, out, err = shell(closed, *words)
        assert (code, err) == (0, "")
        assert bool(out) == (">&-" not in closed or closed == "2>&-")
    assert model.read_bytes()[:4] == b"GGUF"
    assert list_checkpoints(tmp_path / "run" / "checkpoints")


def test_chat_needs_stdin(trained):
    code, out, err = shell("<&-", "chat", trained[0], "--chat-template", "chatml")
    assert (code, out) == (1, "")
    assert err == "error: chat reads messages from stdin, which is closed: open it, or pipe lines\n"


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["train-llm", "--help"], ["--version"]])
def test_help_that_cannot_be_written(words):
    code, _, err = shell(f"> {FULL}", *words)
    assert code == 1
    assert err.startswith("error: ")
    assert "No space left on device" in err
    assert err.count("\n") == 1


def test_a_training_outlives_its_reader(tmp_path, text_file):
    folder = tmp_path / "run"
    code, out, err = shell("| head -1", *run_of(folder, text_file), shell_words='; exit "$?"')
    assert code == 0, err
    assert out.count("\n") == 1
    assert err == "note: lines of stdout were lost: Broken pipe\n"
    assert list_checkpoints(folder / "checkpoints")[-1].name == "step-000006"
    assert (folder / "model.gguf").exists()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("where", ["> /dev/full", "2> /dev/full", "> /dev/full 2>&1"])
def test_a_training_outlives_a_full_disk_of_its_output(tmp_path, text_file, where):
    folder = tmp_path / "run"
    code, out, err = shell(where, *run_of(folder, text_file))
    assert code == 0, err
    assert "finished 6 steps" in out or where.startswith(">")
    told = "note: lines of stdout were lost: No space left on device\n"
    assert err == (told if where == "> /dev/full" else "")
    assert list_checkpoints(folder / "checkpoints")[-1].name == "step-000006"


@pytest.mark.parametrize("times", [1, 2])
def test_a_training_whose_terminal_closes_writes_a_checkpoint(tmp_path, text_file, times):
    import pty

    folder = tmp_path / "run"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        words = command(*run_of(folder, text_file, steps=100_000, save_every=50_000, warmup=0))
        os.execv(words[0], words)
    text = b""
    while b"loss " not in text:
        text += os.read(terminal, 1000)
    if times == 2:  # the shell sends one, too
        os.kill(pid, signal.SIGHUP)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert list_checkpoints(folder / "checkpoints")
    assert (folder / "model.gguf").exists()


SCRIPT = """
import sys

import numpy as np

from pyggml import nn, optim, train

folder = sys.argv[1]
rows = np.eye(64, 4, dtype=np.float32), np.arange(64, dtype=np.int32) % 2
model = nn.Linear(4, 2)
trainer = train.Trainer(
    model, rows, optimizer=optim.SGD(model, lr=0.1), task="classification",
    batch_size=2, steps=10**7, checkpoint_dir=folder + "/checkpoints",
)
try:
    trainer.fit()
except train.TrainingInterrupted as error:
    open(folder + "/end", "w").write(f"{error.signum} {error.checkpoint}")
"""


def test_a_script_whose_terminal_closes_writes_a_checkpoint(tmp_path):
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-c", SCRIPT, str(tmp_path)])
    text = b""
    while b"loss " not in text:
        text += os.read(terminal, 1000)
    os.close(terminal)
    os.waitpid(pid, 0)
    signum, checkpoint = (tmp_path / "end").read_text().split()
    assert int(signum) == signal.SIGHUP
    assert list_checkpoints(tmp_path / "checkpoints")[-1] == Path(checkpoint)


def test_nohup_is_respected(tmp_path, text_file):
    folder = tmp_path / "run"
    words = command(*run_of(folder, text_file, steps=300, save_every=300))
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    for line in process.stdout:
        if line.startswith("step 1/"):
            process.send_signal(signal.SIGHUP)
    process.stdout.close()
    assert process.wait(900) == 0
    assert list_checkpoints(folder / "checkpoints")[-1].name == "step-000300"


def test_launch_hands_a_hangup_on_as_sigterm(tmp_path):
    seen = tmp_path / "seen"
    job = (
        "import signal, sys, time\n"
        "def end(number, frame):\n"
        f"    open({str(seen)!r}, 'w').write(signal.Signals(number).name)\n"
        "    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w')\n"
        "time.sleep(60)\n"
    )

    def hang_up():
        while not (tmp_path / "ready").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGHUP)

    def unheard(number, frame):
        pass

    before = signal.signal(signal.SIGHUP, unheard)
    try:
        thread = threading.Thread(target=hang_up)
        thread.start()
        assert _run([sys.executable, "-c", job]) == (143, signal.SIGHUP)
        thread.join()
        assert signal.getsignal(signal.SIGHUP) is unheard
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen.read_text() == "SIGTERM"


def test_a_lack_of_memory_is_told_with_a_cure_that_fits(tmp_path):
    with (tmp_path / "a.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 50) + b"{}" + b" " * 48)
        file.truncate(2**40)
    words = command("inspect", tmp_path / "a.safetensors")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -v 6000000; "$@"', "bash", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a.safetensors: the file of 1.1 TB cannot be mapped" in done.stderr
    assert "ulimit -v" in done.stderr
    assert "smaller batches" in explain(MemoryError(), trains=True)[0]
    assert "smaller file" in explain(MemoryError())[0]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_streams_that_lose_lines(capsys):
    with FULL.open("w") as full:
        stream = LastingStream(full)
        assert stream.write("a\n") == 2
        assert stream.lost is None
        stream.flush()
        assert stream.lost == "No space left on device"
        assert not stream.isatty()
        PlainBar(3, file=full).note("lost, and nothing else")
        before, sys.stdout = sys.stdout, full
        try:
            settle()
        finally:
            sys.stdout = before
        full.flush()
    before, sys.stderr = sys.stderr, None
    try:
        PlainBar(3).note("no")
        settle()
    finally:
        sys.stderr = before
    assert capsys.readouterr() == ("", "")
