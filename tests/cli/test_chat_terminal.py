# SPDX-License-Identifier: MIT
"""`pyggml chat` on a terminal: Ctrl-C ends an answer, not the program; controls are escapes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("typer")
import pyggml as pg
from pyggml.models import build

from ..data.chat_templates import tokenizer_for
from .conftest import command

pytestmark = pytest.mark.slow


def test_ctrl_c_ends_an_answer_and_not_the_program(tmp_path):
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<eos>")
    pg.seed(1)
    sizes = {"vocab_size": tokenizer.vocab_size, "context": 4096, "n_embd": 32, "n_layer": 2}
    build("llama", {**sizes, "n_head": 2}).save(tmp_path / "model.gguf", tokenizer)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command("chat", tmp_path / "model.gguf", "--max-tokens", 3000, "--seed", 1, "--threads", 1),
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    os.close(slave)
    seen = b""

    def until(text: bytes, wait: float = 60.0) -> bytes:
        nonlocal seen
        end = time.monotonic() + wait
        while text not in seen and time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    seen += os.read(master, 4096)
                except OSError:
                    break
        assert text in seen, seen
        before, seen = seen[: seen.index(text)], seen[seen.index(text) + len(text) :]
        return before

    try:
        until(b"> ")
        os.write(master, b"Hello\n")
        until(b"Hello\r\n")
        time.sleep(1.0)  # the answer is being written
        os.kill(process.pid, signal.SIGINT)
        answer = until(b"\r\n> ", 30.0)
        assert b"\x1b" not in answer
        assert answer
        # At the prompt it only says how to leave.
        os.kill(process.pid, signal.SIGINT)
        until(b"Ctrl-D ends")
        os.write(master, b"/exit\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
