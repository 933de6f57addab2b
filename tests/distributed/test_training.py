# SPDX-License-Identifier: MIT
"""Ranks that share batches train as one process does, with the same bits each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .ranks import run

pytestmark = pytest.mark.mpi
PROGRAM = Path(__file__).parent / "training.py"
# Losses are f32 numbers of about 3; f16 rounds operands that a loss scale of its own multiplied.
TOLERANCE = {"f16": 1e-4}


def train(ranks: int, case: str, *more: str | Path) -> dict[str, Any]:
    done = run(ranks, PROGRAM, case, *(more or ("-",)))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(set(found["digests"])) == 1, "ranks have different weights"
    return found


SLOW = ("bf16", "f16", "clip", "clip_value", "accumulate", "masks", "uneven", "lora")


@pytest.mark.parametrize(
    "case",
    ["f32", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
)
def test_ranks_train_as_one_does(case: str) -> None:
    alone = train(1, case)
    for ranks in (2, 4) if case in ("f32", "masks") else (4,):
        together = train(ranks, case)
        least = TOLERANCE.get(case, 1e-6)
        assert together["losses"] == pytest.approx(alone["losses"], rel=0, abs=least)
        assert together["norms"] == pytest.approx(alone["norms"], rel=10 * max(least, 1e-5))
        assert together["tokens"] == alone["tokens"]
        assert together["validation"] == pytest.approx(alone["validation"], rel=0, abs=least)
        assert together["metrics"] == pytest.approx(alone["metrics"], abs=1e-3)


@pytest.mark.slow
def test_the_same_ranks_give_the_same_bits() -> None:
    first, second = train(4, "masks"), train(4, "masks")
    assert first == second


@pytest.mark.slow
def test_other_ranks_resume_with_the_same_order(tmp_path: Path) -> None:
    whole = train(1, "f32")
    for before, after in ((2, 4), (4, 1), (1, 2)):
        folder = tmp_path / f"{before}-{after}"
        train(before, "f32", folder, "20")
        rest = train(after, "f32", folder)
        assert len(rest["losses"]) == 30
        assert rest["losses"] == pytest.approx(whole["losses"][20:], rel=0, abs=1e-6)
        assert rest["validation"] == pytest.approx(whole["validation"], rel=0, abs=1e-6)
