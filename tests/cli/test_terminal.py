# SPDX-License-Identifier: MIT
"""Names and texts of strangers are no commands to a terminal."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from pyggml.cli.terminal import LogFormatter, say, shown, written
from pyggml.cli.training.live import PlainReporter, RichReporter
from pyggml.data import Tokenizer
from pyggml.errors import printable
from pyggml.models import build

# Clear the screen, set the title, C1's form of an escape, delete, turn the direction of writing.
EVIL = "a\x1b[2J\x1b]0;mine\x07\x9b2J\x7f\r\u202eb"


def plain(text: str) -> bool:
    return not any(char in text for char in "\x1b\x07\x9b\x7f\r\u202e")


def test_no_control_is_left() -> None:
    everything = "".join(map(chr, range(0x3000))) + "".join(map(chr, range(0xD800, 0xE000)))
    text = printable(everything)
    assert plain(text)
    text.encode()
    assert all(char.isprintable() or ord(char) >= 0xA0 for char in text)
    assert shown("é\t世\n") == "é\t世\n"


def test_messages_notes_and_samples_are_plain(capsys, caplog) -> None:
    for reporter in (PlainReporter(), RichReporter()):
        reporter.note(EVIL)
        reporter.sample(EVIL)
        reporter.describe([("text", EVIL)])
    say(EVIL, error=True)
    out, err = capsys.readouterr()
    assert out.count(r"\x1b[2J") == 6
    assert plain(out)
    assert plain(err)
    record = logging.LogRecord("x", 30, "", 0, "%s is left out", (EVIL,), None)
    assert plain(LogFormatter("%(message)s").format(record))


def test_errors_are_plain(cli, tmp_path) -> None:
    name = "no\x1b[2J\x9b.txt"
    for arguments in (
        ("train-llm", "--text", tmp_path / name, "--artifact-dir", tmp_path / "a"),
        ("generate", "--model", tmp_path / name),
        ("infer", "--model", tmp_path / name, "--image", "b"),
    ):
        code, out, err = cli(*arguments)
        assert code
        assert plain(out + err)
        assert r"no\x1b[2J\x9b.txt" in err


@pytest.mark.parametrize("terminal", [False, True])
def test_a_text_for_a_file_stays_as_it_is(monkeypatch, capsys, terminal) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert written(EVIL) == (shown(EVIL) if terminal else EVIL)


def test_generated_text_is_plain_on_a_terminal(cli, tmp_path, monkeypatch) -> None:
    tokenizer = Tokenizer.chars(["\x1b[2J\x07"])
    sizes = {"n_layer": 1, "n_head": 1, "n_embd": 8, "context": 16}
    model = build("gpt2", sizes, vocab_size=tokenizer.vocab_size)
    model.save_gguf(tmp_path / "m.gguf", tokenizer, "x")
    arguments = ("generate", "--model", tmp_path / "m.gguf", "--prompt", "\x1b[", "--seed", "1")
    code, out, _ = cli(*arguments, "--temperature", "5")
    assert code == 0
    assert "\x1b" in out
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("pyggml.cli.terminal.sys", terminal)
    code, out, _ = cli(*arguments, "--temperature", "5")
    assert code == 0
    assert plain(out)
