# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import subprocess
import sys

import pytest

TEXT = "\n".join(
    f"The {number} quick brown foxes jump over the lazy dog while it rains in the {place}."
    for number in ("two", "three", "four", "five", "six")
    for place in ("north", "south", "east", "west", "valley", "city")
)
SMALL = {
    "--tokenizer": "chars",
    "--layers": "1",
    "--heads": "2",
    "--embd": "16",
    "--seq-len": "16",
    "--batch-size": "4",
    "--steps": "6",
    "--warmup": "1",
    "--threads": "1",
    "--sample-tokens": "8",
    "--seed": "1",
}


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "foxes.txt"
    path.write_text(TEXT)
    return path


def options(*, report=False, **changes):
    """The small run's options with some replaced; None takes one out.

    Drawing takes longer than the training: few of the runs are those with a report.
    """
    chosen = dict(SMALL)
    for name, value in changes.items():
        chosen["--" + name.replace("_", "-")] = value
    words = [
        part for name, value in chosen.items() if value is not None for part in (name, str(value))
    ]
    return [*words, "--report" if report else "--no-report"]


def command(*args):
    return [sys.executable, "-m", "pyggml.cli", *map(str, args)]


def pyggml(*args, timeout=900, env=None, **kwargs):
    """Run the command line in a process of its own."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **(env or {})}
    environment.pop("PYGGML_DEBUG", None)
    return subprocess.run(
        command(*args),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=timeout,
        **kwargs,
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory, text_file):
    """The folder of a finished small run, and what the run printed."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    done = pyggml("train-llm", "--text", text_file, "--artifact-dir", folder, *options(report=True))
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.fixture
def cli():
    """Call the command line within this process: (arguments) -> (exit code, stdout, stderr)."""
    from typer.testing import CliRunner

    from pyggml.cli.app import app

    def call(*args):
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.stdout, result.stderr

    return call
