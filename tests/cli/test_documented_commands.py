# SPDX-License-Identifier: MIT
"""The commands of README and guide: their options are those of the program."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer")
import typer

from pyggml.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands():
    """Return a name and the words of each command in a block of a page."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if "pyggml" in words[:4] and words[0] in ("pyggml", "mpiexec"):
                    words = words[words.index("pyggml") + 1 :]
                    found.append((f"{page.name}: {' '.join(words)[:50]}", words))
    return found


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in commands()])
def test_a_documented_command_is_understood(words):
    group = typer.main.get_command(app)
    name, *rest = words
    assert name in group.commands, name
    if name == "launch":  # starts another one
        start = next(i for i, word in enumerate(rest) if word in group.commands)
        name, *rest = rest[start:]
    command = group.commands[name]
    context = command.context_class(command, info_name=name, resilient_parsing=True)
    _, left, _ = command.make_parser(context).parse_args([word for word in rest if word != "&"])
    assert not left


def test_there_are_commands():
    assert len(commands()) > 25
