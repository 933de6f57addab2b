# SPDX-License-Identifier: MIT
"""`mpiexec -n 2 pyggml …` gives what one process gives, and one message where it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .ranks import run, run_code

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


def test_train_llm_on_ranks_is_that_of_one_process(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog.\n" * 60)
    sizes = "--tokenizer chars --layers 1 --heads 2 --embd 16 --seq-len 16 --sample-tokens 0"
    given = ["train-llm", "--text", text, *sizes.split(), "--batch-size", "6", "--threads", "1"]
    found = {}
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        more = ["--artifact-dir", folder, "--steps", "6", "--save-every", "3"]
        done = run(ranks, "-m", "pyggml.cli", *given, *more)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("model.gguf has") == 1
        found[ranks] = losses(folder)
    assert len(found[1]) > 6
    assert found[2] == pytest.approx(found[1], rel=0, abs=1e-6)
    again = ["--resume", "--artifact-dir", tmp_path / "2", "--steps", "8"]
    done = run(4, "-m", "pyggml.cli", "train-llm", *again)
    assert done.returncode == 0, done.stderr
    assert "continuing after step 6" in done.stdout
    done = run(2, "-m", "pyggml.cli", *given, "--artifact-dir", tmp_path / "2")
    assert done.returncode == 2
    assert done.stderr.count("holds another run") == 1


def test_a_rank_with_other_options_is_refused(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import training
from pyggml import distributed
rank = distributed.init().rank
training.make("f32", None, patience=0, min_lr=None, seed=int(rank == 1))
"""
    done = run_code(2, tmp_path, code)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if "errors.DistributedError:" in line]
    assert len(told) == 1
    assert "option seed" in told[0]
    assert "rank 1" in told[0]


def test_more_ranks_than_rows_are_refused(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import training
training.make("f32", None, batch_size=2)
"""
    done = run_code(4, tmp_path, code)
    assert done.returncode == 1
    assert done.stderr.count("batch_size must be at least 4") == 1
